"""Worlds: the processes that take part in a run, determined from how this process was launched."""
