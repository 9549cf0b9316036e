"""cuFile, NVIDIA's library of GPUDirect Storage, from the CUDA toolkit or the wheel ``nvidia-cufile``. Where
the kernel, the file system or the device cannot move data between storage and a GPU directly, it moves the
data through host memory (its "compatibility mode"), and only its log says so.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BackendError, Unreachable, WirespeedError
from ...files import file_in_memory

#: What the log of libcufile 1.15 says of a driver that moves everything through memory of the host, of a file
#: for which only this is possible, and what it is called here. Its statistics would say it too, but their
#: calls crash some processes.
_COMPATIBLE_DRIVER, _COMPATIBLE = "running in compatible mode", "compat mode enabled"
THROUGH_HOST = "through host memory (compatibility mode)"
#: The kernel module of GPUDirect Storage, and what moving data by it is called.
_MODULE, _DIRECTLY = "/proc/driver/nvidia-fs", "directly (nvidia-fs)"
#: Where the library looks up the device of a file system; containers rarely have it.
_UDEV = "/run/udev/data"
_MISSING = (
    "cuFile is not installed: install libcufile of the CUDA toolkit, or `pip install wirespeed[cufile]`"
)


@cache
def log_of() -> Path:
    """The log of the library, in memory: otherwise the library writes it into the current folder."""
    if not os.environ.get("CUFILE_LOGFILE_PATH"):
        os.environ["CUFILE_LOGFILE_PATH"] = str(file_in_memory("cufile.log"))
        os.environ["CUFILE_LOGGING_LEVEL"] = "NOTICE"
    return Path(os.environ["CUFILE_LOGFILE_PATH"])


def bindings() -> Any:
    """The module of the library.

    Raises:
        BackendError: If the module or the library is not installed.
    """
    log_of()  # the library reads its variables when it is loaded
    try:
        from cuda.bindings import cufile

        cufile.get_version()
    except (ImportError, RuntimeError) as error:  # of the module, or of the library
        raise BackendError(_MISSING) from error
    return cufile


def version() -> str:
    """Version of the library, of which 1070 is 1.7.0."""
    number = int(bindings().get_version())
    return f"{number // 1000}.{number % 1000 // 10}.{number % 10}"


def _logged() -> str:
    """The log of the library until now; empty if it cannot be read."""
    with suppress(OSError):
        return log_of().read_text(errors="replace")
    return ""


class CuFile:
    """A file that is open by cuFile.

    Attributes:
        way: Which way its data takes; empty if the library does not say it.

    Raises:
        Unreachable: If the library does not accept the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._library, self._open = bindings(), ExitStack()
        self._failures = (self._library.cuFileError, RuntimeError)
        with self._errors("opening the driver", Unreachable):
            self._library.driver_open()
        self._open.callback(self._library.driver_close)
        described = np.zeros(1, self._library.descr_dtype)
        described["type"] = int(self._library.FileHandleType.OPAQUE_FD)
        try:
            described["handle"]["fd"] = self._opened_again(descriptor)
            missing = not Path(_UDEV).is_dir()
            without = f" (it looks devices up in {_UDEV}, which is missing here)" if missing else ""
            before = len(_logged())
            with self._errors(f"registering the file{without}", Unreachable):
                self._handle = int(self._library.handle_register(described.ctypes.data))
        except BaseException:
            self.close()
            raise
        self._open.callback(self._library.handle_deregister, self._handle)
        log, has_module = _logged(), Path(_MODULE).exists()  # the driver is opened once in a process
        is_compatible = _COMPATIBLE_DRIVER in log or _COMPATIBLE in log[before:]
        self.way = THROUGH_HOST if is_compatible else _DIRECTLY if has_module else ""

    def _opened_again(self, descriptor: int) -> int:
        """A descriptor of the same file without ``O_NOFOLLOW``, with which the library refuses files."""
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_DIRECT)
        own = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)
        self._open.callback(os.close, own)
        return own

    @contextmanager
    def _errors(self, doing: str, error: type[WirespeedError] = BackendError) -> Iterator[None]:
        """Errors of the library as errors of the backend."""
        try:
            yield
        except self._failures as failure:
            raise error(f"cuFile, {doing}: {' '.join(str(failure).split())}") from failure

    def register(self, base: int, size: int) -> None:
        """Register the memory of a GPU, of which calls use parts."""
        with self._errors("registering memory of the GPU"):
            self._library.buf_register(base, size, 0)
        self._open.callback(self._library.buf_deregister, base)

    def move(self, base: int, size: int, offset: int, within: int, *, writes: bool) -> None:
        """Read from the file into registered memory, or write from there; threads may do so at once.

        Args:
            base: Address of the registered memory.
            size: Number of bytes.
            offset: Where they are in the file.
            within: Where they are in the memory.
            writes: Whether to write the file.

        Raises:
            BackendError: If not all bytes were moved.
        """
        does = self._library.write if writes else self._library.read
        with self._errors("writing" if writes else "reading"):
            moved = does(self._handle, base, size, offset, within)
        if moved is not None and moved != size:  # some versions of the bindings do not return it
            raise BackendError(f"cuFile moved {moved} of {size} B; the file is full, or was changed")

    def close(self) -> None:
        """Release the memory, the file and the driver."""
        with suppress(*self._failures):  # what fails now was lost before, and the values are kept
            self._open.close()
