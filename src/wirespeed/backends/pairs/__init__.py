"""The backend of messages and of shared buffers between the first and the last rank of a job."""
