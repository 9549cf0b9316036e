"""Collectives over NCCL on GPUs. Nothing else of the collectives imports ``cuda`` or ``nccl``."""
