"""The backend of a job of several processes: each process executes its own transfers of a common plan. The
host or the CUDA backend of each process moves the bytes; ``job_process`` defines its interface.
"""
