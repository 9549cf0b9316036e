"""A plugin of pytest for `make sanitize`: tests use the library that a variable names, compiled with a
sanitizer. Processes that tests start do without it.
"""

from __future__ import annotations

import os
from pathlib import Path

from wirespeed import native

os.environ.pop("LD_PRELOAD", None)
native.LIBRARY = Path(os.environ["SANITIZED"])
