"""The backend of messages and shared buffers between the first and the last rank of a job."""
