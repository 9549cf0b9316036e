"""ReFrame test: does a node move data as fast as others of its model?

    reframe -C SETTINGS.py -c wirespeed_check.py -r
    reframe -C SETTINGS.py -c wirespeed_check.py -r -S options='--expect gpus=8,nvlinks=18'

`wirespeed` must be on the search path of the job. Each kind of path is a performance variable: the rate of
the slowest path, with the reference that wirespeed has for this model. No system needs its own references.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable


@rfm.simple_test
class WirespeedCheck(rfm.RunOnlyRegressionTest):
    """`wirespeed check` on one node: 20 s to a minute."""

    descr = "every path of a node is as fast as others of its model"
    valid_systems = ["*"]  # noqa: RUF012 - as ReFrame declares it
    valid_prog_environs = ["*"]  # noqa: RUF012
    tags = {"bandwidth", "health"}  # noqa: RUF012
    num_tasks = num_tasks_per_node = 1
    exclusive_access = True
    time_limit = "10m"
    executable = "wirespeed"
    #: Further options of `wirespeed check`, in one text.
    options = variable(str, value="")

    @run_before("run")
    def set_command(self):
        self.executable_opts = ["check", "--no-save", "--format json", self.options]

    @run_before("sanity")
    def read_answer(self):
        """Read what was found; a node that is in use is skipped."""
        answer = Path(self.stagedir, str(sn.evaluate(self.stdout))).read_text()
        try:
            (self.found,) = json.loads(answer)["runs"]
        except (ValueError, KeyError):
            self.found = None
            return
        if self.found["verdict"] in ("busy", "unknown", "interrupted"):
            self.skip(f"not judged: {self.found['sentence']}")

    @sanity_function
    def is_sound(self):
        """Data is right, nothing is missing, and no path failed. Slow paths are for the references."""
        if self.found is None:
            return sn.assert_true(False, "wirespeed gave no answer; see its standard error")
        words = self.found["sentence"] + (f"; remedy: {self.found['remedy']}" if self.found["remedy"] else "")
        is_slow = any(path["least"] and path["value"] < path["least"] for path in self.found["paths"])
        is_wrong = self.found["wrong"] or any(path["failed"] for path in self.found["paths"])
        failed = self.found["verdict"] in ("fail", "implausible") and (is_wrong or not is_slow)
        return sn.assert_false(failed, words)

    @run_before("performance")
    def set_references(self):
        """A variable for each kind of path: expected rate, and how far below it is still right."""
        references = {}
        for path in self.found["paths"]:
            if path["value"] is None:
                continue
            scale, unit = (1e9, "GB/s") if path["unit"] == "B/s" else (1, path["unit"])
            expected, least = path["normal"] or path["least"], path["least"]
            if least and path["verdict"] == "warn":  # slower than others, which is no failure
                least = min(least, path["value"])
            name = path["path"]
            self.perf_variables[name] = sn.make_performance_function(sn.defer(path["value"] / scale), unit)
            references[name] = (0, None, None, unit)
            if expected and least:
                references[name] = (expected / scale, least / expected - 1, None, unit)
        self.reference = {"*": references}
