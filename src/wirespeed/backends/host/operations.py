"""The operations that this backend runs, with the numbers by which the kernels know them."""

from __future__ import annotations

from ...model import Operation

COPY, SCALE, ADD, TRIAD, READ, WRITE, CHASE = range(7)

CODES = {
    Operation.COPY: COPY,
    Operation.SCALE: SCALE,
    Operation.ADD: ADD,
    Operation.TRIAD: TRIAD,
    Operation.READ: READ,
    Operation.WRITE: WRITE,
    Operation.CHASE: CHASE,
}
