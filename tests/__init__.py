"""The tests of wirespeed; importing this comes before all of it that they import."""

import sys

_measured = sys.modules.get("slipcover.pytest_plugin")
if _measured and (_in_worker := _measured._slipcover_instance):
    # The command's --threshold does not reach the processes that run tests. Each removal of the probes of
    # lines that ran looks through all functions that are loaded: few removals of many probes cost least.
    _in_worker.d_miss_threshold = 2000
    _in_worker.source = None  # whoever merges adds the files that no worker imported
