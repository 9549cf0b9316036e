"""The command line, text and JSON of nccl-tests' programs."""
