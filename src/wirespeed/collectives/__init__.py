"""Collectives: what nccl-tests measures, over NCCL on GPUs, over MPI on host memory, and simulated."""
