"""What distinguishes the outputs of nvbandwidth's versions since 0.4."""

from __future__ import annotations

from functools import partial

from .dialects import Dialect
from .style import DialectName

_OPENING = (
    "NOTE: This tool reports current measured bandwidth on your system.\n"
    "Additional system-specific tuning may be required to achieve maximal peak bandwidth.\n\n"
)
#: The note on smaller buffers of 0.4.
_SMALLER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. \n"
    "It is suggested to use the default buffer size (64MB) to achieve maximal peak bandwidth.\n"
)
_LATER_SMALLER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. It is suggested to "
    "use the default buffer size (512MB) to achieve maximal peak bandwidth."
)
_PAIR = "device_to_device_bidirectional_memcpy_"


def _titles() -> dict[str, str]:
    """The titles of 0.4 that differ from those of later versions."""
    titles = {
        "device_to_device_memcpy_read_sm": "memcpy CE GPU(row) -> GPU(column) bandwidth",
        f"{_PAIR}read_sm": "memcpy SM GPU(row) -> GPU(column) bandwidth",
        f"{_PAIR}write_sm": "memcpy SM GPU(row) <- GPU(column) bandwidth",
        "all_to_host_bidirectional_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth",
        "host_to_all_bidirectional_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth",
        "all_to_host_bidirectional_memcpy_sm": "memcpy SM CPU(row) <- GPU(column) bandwidth",
        "host_to_all_bidirectional_memcpy_sm": "memcpy SM CPU(row) -> GPU(column) bandwidth",
    }
    for engine, all_gpus in (("ce", "All Gpus"), ("sm", "All GPUs")):
        copies = f"memcpy {engine.upper()}"
        titles[f"all_to_one_write_{engine}"] = f"{copies} All Gpus -> GPU(column) total bandwidth"
        titles[f"all_to_one_read_{engine}"] = f"{copies} {all_gpus} <- GPU(column) total bandwidth"
        titles[f"one_to_all_write_{engine}"] = f"{copies} GPU(column) -> All GPUs total bandwidth"
        titles[f"one_to_all_read_{engine}"] = f"{copies} GPU(column) <- All GPUs total bandwidth"
    return titles


#: What 0.4 and 0.5 have in common, and 0.10 and 0.11.
_old = partial(
    Dialect, "nvbandwidth", default_mebibytes=64, opening=_OPENING, closing="", names="model",
    refuses_on_output=True,
    parts={f"{_PAIR}{way}_{by}": part for way in ("read", "write")
           for by, part in (("ce", "first"), ("sm", "total"))},
)  # fmt: skip
_new = partial(
    Dialect, "nvbandwidth", variation="samples", cuda_names=True, listed_apart=False, smaller=_LATER_SMALLER
)

#: Values of ``Style.dialect``.
VERSIONS: dict[DialectName, Dialect] = {
    "0.4": _old(
        "v0.4", "v0.4", "0.4", smaller=_SMALLER, waived="Waiving {name}.\n\n", padded=False, after_usage="",
        titles=_titles(),
    ),
    "0.5": _old("v0.5", "v0.5", "0.5"),
    "0.6": Dialect(
        "nvbandwidth", "v0.6", "v0.6", "0.6", default_mebibytes=64, names="bus", refuses_on_output=True
    ),
    "0.7": Dialect("nvbandwidth", "v0.7", "v0.7", "0.7", names="bus"),
    "0.8": Dialect("nvbandwidth", "v0.8", "v0.8", "0.8"),
    "0.9": Dialect(
        "nvbandwidth", "v0.9", "v0.9", "0.9", variation="cells", starts=("run",), listed_apart=False,
        note_first=True, smaller=_LATER_SMALLER,
    ),
    "0.10": _new("v0.10.0", "v0.10.0", "0.10"),
    "0.11": _new("v0.11.0", "v0.11.0", "0.11", names="bus and function"),
}  # fmt: skip
