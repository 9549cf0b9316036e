"""A testcase, a report and a backend from outside the package, in a few lines each."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import wirespeed
from wirespeed import backends
from wirespeed.backends import cuda
from wirespeed.backends.base import Backend, Prepared
from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.document import Document
from wirespeed.hardware.devices import Gpu
from wirespeed.hardware.topology import Rank
from wirespeed.measurement import Measurement, Sample, Unit
from wirespeed.model import Access, Engine
from wirespeed.options import RunOptions
from wirespeed.reports import Style, formats
from wirespeed.tables import Quantity, State
from wirespeed.testcases.patterns import bisect, gpus
from wirespeed.testcases.table import Testcase

# A testcase: one row over a pattern.
HALVES = Testcase("gpus_bisect_write_ce", "every GPU pushes to the one half of the machine away, all at once",
                  bisect(gpus), "bisection by copy engines", Engine.CE, Access.WRITE)  # fmt: skip


def test_a_testcase_from_outside() -> None:
    document = wirespeed.run([HALVES], machine="simulated:dgx-a100-8")
    table = document.testcases[0].tables[0]
    assert table.rows.labels[0] == "gpu0->gpu4" and len(table.values()) == 8
    for format in set(formats()) - {"vllm"}:
        assert "gpus_bisect_write_ce" in wirespeed.render(document, format, Style(all_cells=True))


# A report: one function.
def markdown(document: Document, style: Style) -> str:
    return "".join(f"| {r.name} | {r.status} |\n" for r in document.testcases)


def test_a_report_from_outside() -> None:
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2")
    assert wirespeed.render(document, markdown) == "| host_to_device_memcpy_ce | passed |\n"


# A backend: a class that overrides what it does.
@dataclass
class Exact(Prepared):
    """Everything moves at one byte per nanosecond."""

    measurement: Measurement

    def sample(self, copies: int) -> Sample:
        amounts = tuple(float(t.bytes * copies) for t in self.measurement.transfers)
        return Sample(tuple(n * 1e-9 for n in amounts), amounts, max(amounts) * 1e-9)


class ExactBackend(Backend):
    name, sample_seconds = "exact", 1e-3

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def refuses(self, measurement: Measurement) -> str | None:
        return None if measurement.transfers[0].engine is Engine.CE else "it has copy engines only"

    def prepare(self, measurement: Measurement, options: RunOptions) -> Exact:
        return Exact(measurement)

    def now(self) -> float:
        self.time += 1
        return self.time

    def state(self) -> State:
        return (Quantity("", "mood", "good"),)

    def libraries(self) -> dict[str, str]:
        return {"exact": "1.0"}


def test_a_backend_from_outside() -> None:
    backend = ExactBackend()
    backend.warn("it is not real")
    document = wirespeed.run(["4", "20"], machine="simulated:hgx-h200-2", backends=[backend])
    copy, kernel = document.testcases
    assert copy.tables[0].values() == pytest.approx([1e9, 1e9])
    assert copy.tables[0].unit is Unit.RATE
    assert copy.warnings == ("it is not real",) and copy.state_before == backend.state()
    assert kernel.reason == "it has copy engines only"
    assert document.libraries == {"exact": "1.0"}


def connect(machine: wirespeed.Machine) -> ExactBackend | None:
    """What a package registers as an entry point of the group ``wirespeed.backends``."""
    return ExactBackend() if machine.name == "elsewhere" else None


def test_a_backend_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch, "[wirespeed.backends]\nexact = tests.simulated.test_seams\n")
    machine = wirespeed.Machine("elsewhere", ranks=(Rank(0, "a", "gpu0"), Rank(1, "b", "gpu0")))
    assert wirespeed.run(["44"], machine=machine).testcases[0].tables[0].values() == pytest.approx([1e9, 1e9])


def discover(machine: wirespeed.Machine) -> wirespeed.Machine:
    """Add a GPU that CUDA does not know, as a package with a backend does."""
    return replace(machine, gpus=(*machine.gpus, Gpu(len(machine.gpus), "elsewhere")))


def test_a_gpu_belongs_to_the_backend_that_discovered_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("outside")
    module.discover = discover  # type: ignore[attr-defined]
    module.connect = lambda machine: ExactBackend()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "outside", module)
    monkeypatch.setattr(cuda, "discover", lambda machine, root: machine)
    _install(tmp_path, monkeypatch, "[wirespeed.backends]\nexact = outside\n")
    machine = backends.discover()
    assert [gpu.backend for gpu in machine.gpus] == ["outside"]
    assert cuda.connect(machine) is None
    document = wirespeed.run(["device_local_copy"], machine=machine)
    assert document.testcases[0].tables[0].values() == pytest.approx([1e9])
    both = replace(machine, gpus=(*machine.gpus, Gpu(1, "NVIDIA", backend="cuda")))
    own = cuda.connect(both)
    assert isinstance(own, CudaBackend)
    assert (own.holds("gpu0"), own.holds("gpu1")) == (False, True)


def test_a_machine_file_without_owners_has_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(0, "NVIDIA", "00000000:06:00")
    here = wirespeed.Machine("here", gpus=(replace(gpu, backend="cuda"),))
    monkeypatch.setattr(backends, "discover", lambda: here)
    file = tmp_path / "machine.json"
    file.write_bytes(replace(here, gpus=(gpu,)).to_json())
    assert backends.describe(str(file)).gpus == here.gpus


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """Put a distribution with entry points on the path, as pip would."""
    info = folder / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    assert "outside" in {d.name for d in metadata.distributions()}
