"""The backend of a job of several processes: each executes its own transfers of a common plan.

What moves the bytes is the host or the CUDA backend of each process, through what ``base`` describes.
"""
