"""Data types and operators with nccl-tests' names, and the encoding of small numbers in each type."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Operators with nccl-tests' names, in the order of NCCL's enumeration.
OPERATORS = ("sum", "prod", "max", "min", "avg", "mulsum")


@dataclass(frozen=True)
class DataType:
    """A type of elements.

    Attributes:
        name: Name in nccl-tests.
        code: Value of NCCL's enumeration.
        bytes: Size of an element.
        numpy: Name in numpy; empty if numpy has no such type.
        exponent, mantissa: Number of bits in a floating-point type; 0 for integers.
    """

    name: str
    code: int
    bytes: int
    numpy: str = ""
    exponent: int = 0
    mantissa: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.exponent > 0

    @property
    def largest(self) -> int:
        """The largest n such that all integers from 0 to n are exact."""
        if self.is_float:
            return int(2 ** (self.mantissa + 1))
        return int(2 ** (8 * self.bytes - (not self.name.startswith("u"))) - 1)

    @property
    def roundoff(self) -> float:
        """The largest relative error of one rounding."""
        return 2.0 ** -(self.mantissa + 1) if self.is_float else 0.0

    @property
    def bias(self) -> int:
        """Offset of stored exponents."""
        return int(2 ** (self.exponent - 1) - 1)

    def encode(self, value: float) -> int:
        """The bits of a non-negative number that the type represents exactly, without subnormals."""
        if not self.is_float or value == 0:
            return int(value)
        fraction, power = math.frexp(value)  # value = fraction * 2**power, 0.5 <= fraction < 1
        stored = int((fraction * 2 - 1) * 2**self.mantissa)
        return ((power - 1 + self.bias) << self.mantissa) | stored


#: All types, in the order of NCCL's enumeration.
TYPES = (
    DataType("int8", 0, 1, "int8"),
    DataType("uint8", 1, 1, "uint8"),
    DataType("int32", 2, 4, "int32"),
    DataType("uint32", 3, 4, "uint32"),
    DataType("int64", 4, 8, "int64"),
    DataType("uint64", 5, 8, "uint64"),
    DataType("half", 6, 2, "float16", 5, 10),
    DataType("float", 7, 4, "float32", 8, 23),
    DataType("double", 8, 8, "float64", 11, 52),
    DataType("bfloat16", 9, 2, "", 8, 7),
    DataType("f8e4m3", 10, 1, "", 4, 3),
    DataType("f8e5m2", 11, 1, "", 5, 2),
)
#: Name -> type.
BY_NAME = {type.name: type for type in TYPES}
