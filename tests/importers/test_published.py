"""Published outputs of healthy machines: no value fails. `docs/results/published.md` has the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.judging.verdict import Verdict

FOLDER = Path(__file__).parents[1] / "data/published"
#: Machines of logs that do not name their GPUs.
MACHINES = {
    "nvbandwidth-a100-readme": "dgx-a100-40g-8",
    "nvbandwidth-h100-issue24": "hgx-h100-8",
    "nvbandwidth-gb200-azure": "gb200-1",
}
#: NICs of the hosts of logs that do not name them.
NICS = {"nccl-tests-2xh100-a3mega": "8x200G"}
#: Logs in which nothing is judged: host memory is unknown.
UNJUDGED = {"mlc-cnf-testbed"}
#: Logs of which a kind of path is not judged: PCIe between GPUs that reach 21 % of it.
PARTLY = {"p2p-rtx4090-tinygrad-issue44"}
LOGS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_no_value_of_a_healthy_machine_fails(path: Path) -> None:
    document = wirespeed.load_log(path, MACHINES.get(path.stem), NICS.get(path.stem))
    check = wirespeed.judge(document)
    bad = [j for j in check.judgements if j.verdict in (Verdict.FAIL, Verdict.IMPLAUSIBLE, Verdict.WARN)]
    assert bad == []
    known = Verdict.WARN if path.stem in PARTLY else Verdict.PASS
    assert check.verdict is (Verdict.UNKNOWN if path.stem in UNJUDGED else known)
    assert bool(check.uncovered) == (path.stem in PARTLY | UNJUDGED)
    assert document.imported[0].unknown == 0
    assert sum(len(table.values()) for r in document.testcases for table in r.tables) > 0


def test_every_log_has_a_source() -> None:
    page = (FOLDER.parents[2] / "docs/results/published.md").read_text()
    assert [path.stem for path in LOGS if f"`{path.stem}`" not in page] == []
