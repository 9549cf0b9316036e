"""Between the first and the last rank of a job: messages, and what sharing a buffer costs."""
