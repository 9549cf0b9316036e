"""``wirespeed`` that measures paths between nodes for less time: what it finds is tested, not how precisely.

python -m tests.processes.briefly qualify ...
"""

from wirespeed.qualify import tcp_probe

tcp_probe.SECONDS, tcp_probe._WARMUP_S = 0.2, 0.05

from wirespeed.qualify import job_nodes, message_sizes  # noqa: E402 # they take the time from there

job_nodes._SIZE_S, job_nodes._TIMES = 0.02, 1.5
message_sizes._LONGEST_MESSAGE_S = 0.2

if __name__ == "__main__":
    from wirespeed.cli.main import entry

    entry()
