"""Arrays for the kernels' tests: any dtype, any valid alignment, frequent edge values."""

from __future__ import annotations

import numpy as np
import on_gpu
from standin_path import ON_DEVICE

from ringcomm._src.core import _core

DTYPES, OPS, SIZES = _core.DTYPES, _core.OPS, _core.ITEM_SIZES
FLOATS = range(4)
UNITS = {  # alignment of an element, in bytes
    name: size // 2 if name.startswith(("(", "complex")) else size for name, size in zip(DTYPES, SIZES, strict=True)
}
RIM = 64


def memory(nbytes: int) -> np.ndarray:
    """Returns bytes that a kernel can access."""
    return on_gpu.the_gpu().memory(nbytes) if ON_DEVICE else np.empty(nbytes, np.uint8)


class Array:
    """Elements at an offset from a multiple of 16 bytes, between margins that must not change."""

    def __init__(self, dtype: int, count: int, misaligned: int) -> None:
        self.nbytes = count * SIZES[dtype]
        self.memory = memory(RIM * 2 + 16 + self.nbytes + 16)
        self.memory[:] = 0xA5
        start = -self.memory.ctypes.data % 16 + RIM + misaligned * UNITS[DTYPES[dtype]] % 16
        self.start = start
        self.bytes = self.memory[start : start + self.nbytes]
        self.address = self.memory.ctypes.data + start

    def rim_is_untouched(self) -> bool:
        rest = np.delete(self.memory, slice(self.start, self.start + self.nbytes))
        return bool((rest == 0xA5).all())


def edges(unit: np.dtype, floating: int | None) -> np.ndarray:
    """Returns edge values as bits: near zero, least, largest; also NaNs and infinities."""
    bits = 8 * unit.itemsize
    top = 1 << (bits - 1)
    values = [0, 1, 2, top - 1, top, top + 1, 2 * top - 1]
    if floating is not None:
        mantissa = (10, 7, 23, 52)[floating]
        infinity = (top - 1) >> mantissa << mantissa
        quiet = infinity | 1 << (mantissa - 1)
        one = infinity >> 1 & ~((1 << mantissa) - 1)
        positive = [
            one,
            one + 1,
            infinity - 1,
            infinity,
            infinity | 1,
            quiet,
            quiet | 3 << (mantissa - 3),
            1 << mantissa,
        ]
        values += [*positive, *(top | value for value in positive)]
    return np.array(values, np.uint64).astype(unit)


def fill_randomly(array: Array, dtype: int, rng: np.random.Generator) -> None:
    """Fills with any bits: a third are edge values, a third near one with ordinary sums."""
    name = DTYPES[dtype]
    array.bytes[:] = rng.integers(0, 256, array.nbytes, np.uint8)
    part = {"complex64": 2, "complex128": 3}.get(name, dtype if dtype in FLOATS else None)
    if name.startswith("("):
        return fill_pairs(array, name, rng)
    unit = np.dtype(f"u{UNITS[name]}")
    elements = array.bytes.view(unit)
    which = rng.integers(0, 3, elements.size)
    elements[which == 0] = rng.choice(edges(unit, part), elements.size)[which == 0]
    if part is not None:
        ordinary = rng.standard_normal(elements.size).astype(np.float32)
        if part == 1:
            near = (ordinary.view(np.uint32) >> 16).astype(np.uint16)
        else:
            near = ordinary.astype({0: "f2", 2: "f4", 3: "f8"}[part]).view(unit)
        elements[which == 1] = near[which == 1]


def fill_pairs(array: Array, name: str, rng: np.random.Generator) -> None:
    """Fills with few distinct values, so that indices decide; some NaN; padding of any bits."""
    value, index = (np.dtype(part) for part in name.strip("()").split(", "))
    size = 2 * max(value.itemsize, index.itemsize)
    rows = array.bytes.reshape(-1, size)
    values = rng.integers(-2, 3, len(rows)).astype(value)
    if value.kind == "f":
        values[rng.integers(0, 5, len(rows)) == 0] = np.nan
        values[rng.integers(0, 5, len(rows)) == 0] *= -0.0
    rows[:, : value.itemsize] = values.view(np.uint8).reshape(-1, value.itemsize)
    indices = rng.integers(-3, 4, len(rows)).astype(index)
    rows[:, size // 2 : size // 2 + index.itemsize] = indices.view(np.uint8).reshape(-1, index.itemsize)


def assert_same(got: Array, want: Array, what: str) -> None:
    wrong = np.flatnonzero(got.bytes != want.bytes)
    assert wrong.size == 0, f"{what}: first at byte {wrong[0]}"
    assert got.rim_is_untouched()
