"""Many small copies behind one gate: no queue may fill up while it is closed."""

from __future__ import annotations

import pytest

from wirespeed.backends.cuda.cuda_driver import CudaBackend
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.options import RunOptions

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pulls", [True, False])
def test_thousands_of_small_copies_between_gpus(
    backend: CudaBackend, pair: tuple[str, str], pulls: bool
) -> None:
    a, b = (Memory(name, MemoryKind.DEVICE) for name in pair)
    transfer = Transfer(a, b, Executor((b if pulls else a).device), Engine.CE, 4096)
    with backend.prepare(Measurement((transfer,), ()), RunOptions(timeout=10)) as prepared:
        sample = prepared.sample(3000)
        prepared.verify()
    assert sample.amounts == (3000 * 4096.0,)
