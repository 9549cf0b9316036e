"""Operations of this backend, with their numbers in the kernels."""

from __future__ import annotations

from ...model import Operation

COPY, SCALE, ADD, TRIAD, SAXPY, READ, WRITE, CHASE = range(8)

CODES = {
    Operation.COPY: COPY,
    Operation.SCALE: SCALE,
    Operation.ADD: ADD,
    Operation.TRIAD: TRIAD,
    Operation.SAXPY: SAXPY,
    Operation.READ: READ,
    Operation.WRITE: WRITE,
    Operation.CHASE: CHASE,
}
