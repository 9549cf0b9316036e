"""Measurements of GPUs through ``gpu_driver``, the interface that each kind of GPU implements."""
