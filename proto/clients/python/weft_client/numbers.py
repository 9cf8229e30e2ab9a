"""What a vector becomes on the wire, and back (SPEC: Numbers).

Python's floats are f64. Each operation here rounds to f32 exactly where SPEC says so: a product of
two f32 is exact in f64, so rounding it once gives the f32 product.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Sequence
from enum import Enum

from weft_client.wire import EXPONENT_MAX, EXPONENT_MIN, ElementType

I32_MAX = 2**31 - 1


class Numbers(Enum):
    """How the values of a vector travel."""

    I32 = "i32"
    FIXED = "fixed"
    F32 = "f32"
    BF16 = "bf16"

    @property
    def element_type(self) -> ElementType:
        """The element type of the row."""
        return {
            Numbers.I32: ElementType.I32,
            Numbers.FIXED: ElementType.I32,
            Numbers.F32: ElementType.F32,
            Numbers.BF16: ElementType.BF16,
        }[self]


def limit(fan_in: int) -> int:
    """The greatest magnitude of an element of which `fan_in` are added without overflow."""
    return I32_MAX // fan_in


def block_exponent(values: Sequence[float], fan_in: int) -> int:
    """The exponent that a member offers for a chunk: the smallest that fits its values."""
    max_abs = max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    if max_abs == 0.0:
        return EXPONENT_MIN
    largest = limit(fan_in)
    exponent = max(EXPONENT_MIN, math.frexp(max_abs)[1] - largest.bit_length() - 1)
    while exponent < EXPONENT_MAX and max_abs > math.ldexp(largest, exponent):
        exponent += 1
    return exponent


def to_fixed(values: Sequence[float], exponent: int, fan_in: int) -> tuple[list[int], bool]:
    """The elements of `values`, and whether one was limited or was NaN."""
    scale, largest = math.ldexp(1.0, -exponent), limit(fan_in)
    elements, clamped = [], False
    for y in to_f32([x * scale for x in to_f32(values)]):
        if math.isnan(y):
            element, clamped = 0, True
        elif abs(y) > largest:
            element, clamped = (largest if y > 0 else -largest), True
        else:
            element = round(y)
        elements.append(element)
    return elements, clamped


def from_fixed(elements: Sequence[int], exponent: int) -> list[float]:
    """The values of `elements`."""
    scale = math.ldexp(1.0, exponent)
    return to_f32([x * scale for x in to_f32(elements)])


def to_f32(values: Sequence[float]) -> list[float]:
    """`values`, each rounded to the nearest f32, ties to even; too large ones to infinity."""
    return array("f", values).tolist()


def encode_i32(elements: Sequence[int]) -> bytes:
    """Two's complement; the low 32 bits of what is larger."""
    return _big_endian(array("I", [element & 0xFFFF_FFFF for element in elements]))


def decode_i32(payload: bytes) -> list[int]:
    """Signed integers."""
    return [element for (element,) in struct.iter_unpack(">i", payload)]


def encode_f32(values: Sequence[float]) -> bytes:
    """binary32."""
    return _big_endian(array("f", values))


def decode_f32(payload: bytes) -> list[float]:
    """binary32."""
    return [value for (value,) in struct.iter_unpack(">f", payload)]


def encode_bf16(values: Sequence[float]) -> bytes:
    """The upper half of the f32, rounded to nearest, ties to even; a NaN stays a quiet one."""
    halves = array("H")
    for (bits,) in struct.iter_unpack(">I", encode_f32(values)):
        if bits & 0x7FFF_FFFF > 0x7F80_0000:
            halves.append(bits >> 16 | 0x40)
        else:
            halves.append(bits + 0x7FFF + (bits >> 16 & 1) >> 16)
    return _big_endian(halves)


def decode_bf16(payload: bytes) -> list[float]:
    """Widened to f32."""
    wide = b"".join(half + b"\0\0" for (half,) in struct.iter_unpack("2s", payload))
    return decode_f32(wide)


def _big_endian(values: array) -> bytes:
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()
