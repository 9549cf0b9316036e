"""The shared library of C functions (``*.c`` here): found beside this file, loaded when the first function is
declared, and refused with one line if it is missing, for another machine, or compiled from other sources.
ctypes releases Python's lock while a C function runs. Each function is declared once, in the module that
checks its arguments.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

from ..errors import BackendLost
from .compile import HERE, NAME, abi

#: Where the library is; tests with sanitizers set another file.
LIBRARY = HERE / NAME
_REMEDY = "install wirespeed again (pip install --force-reinstall wirespeed; from sources: pip install -e .)"
#: Machines by their number in the head of an ELF file (``e_machine``).
_MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le", 22: "s390x", 243: "riscv64"}

#: Types of arguments: a word, an unsigned word, a double; ``None`` is the type of no result.
I64, U64, F64 = ctypes.c_int64, ctypes.c_uint64, ctypes.c_double


@cache
def library() -> ctypes.CDLL:
    """The library.

    Raises:
        BackendLost: If it cannot be used; the message says what to do.
    """
    try:
        with LIBRARY.open("rb") as file:
            head = file.read(20)
        if (machine := _machine(head)) not in ("", platform.machine()):
            raise BackendLost(f"{LIBRARY} is for {machine}, not for {platform.machine()}: {_REMEDY}")
        loaded = ctypes.CDLL(str(LIBRARY))
        number = loaded.ws_abi
    except FileNotFoundError:
        raise BackendLost(f"the library of C functions is missing ({LIBRARY}): {_REMEDY}") from None
    except (OSError, AttributeError) as error:
        raise BackendLost(f"the library of C functions cannot be loaded: {error}: {_REMEDY}") from None
    number.restype, number.argtypes = I64, []
    if number() != abi():
        raise BackendLost(f"{LIBRARY} was compiled from other sources than those beside it: {_REMEDY}")
    return loaded


def _machine(head: bytes) -> str:
    """The machine for which an ELF file is; empty if that is unknown."""
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return ""
    return _MACHINES.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"), "")


def function(name: str, result: Any, *arguments: Any) -> Any:
    """A C function with its types; ctypes refuses other numbers of arguments."""
    declared = library()[name]  # an object of its own
    declared.restype, declared.argtypes = result, arguments
    return declared


def address_of(name: str) -> int:
    """The address of a C function, for C code that calls it."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0
