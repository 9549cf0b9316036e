"""A plugin of pytest for `make sanitize`: tests use the library of C functions that the variable names, which was
compiled with a sanitizer.
"""

from __future__ import annotations

import os
from pathlib import Path

from wirespeed import native

native.LIBRARY = Path(os.environ["SANITIZED"])
