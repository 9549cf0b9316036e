"""Whether peer access between GPUs really works: attempts in their own processes, verdicts and causes."""
