"""NCCL, through the low-level bindings of nccl4py."""
