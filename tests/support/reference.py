"""Reference results of collectives, computed in plain NumPy, and the inputs that tests use."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcomm._src.base.ops import NUMBERS, Op

try:
    import ml_dtypes

    BFLOAT16: Any = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

DTYPES = [np.dtype(name) for name in NUMBERS if name != "bfloat16"] + ([BFLOAT16] if BFLOAT16 is not None else [])
FLOATING = [dtype for dtype in DTYPES if dtype.name in ("float16", "bfloat16", "float32", "float64")]
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def integers(dtype: np.dtype[Any], count: int, rank: int, op: Op, seed: int) -> np.ndarray[Any, Any]:
    """Returns small integers whose reduction over a few ranks is exact in every dtype."""
    rng = np.random.default_rng((seed, rank))
    if dtype.kind == "b":
        return rng.random(count) < 0.7
    if op == Op.Product:
        low, high = (1, 3) if dtype.kind == "u" else (-2, 3)
    else:
        low, high = (0, 13) if dtype.kind == "u" else (-12, 13)
    return rng.integers(low, high, count).astype(dtype)


def reduced(op: Op, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Reduces integers exactly; integer averages round to zero, 16-bit ones use float32."""
    dtype, size = inputs[0].dtype, len(inputs)
    if dtype.kind == "b":
        return np.logical_or.reduce(inputs) if op in (Op.Average, Op.Sum, Op.Max) else np.logical_and.reduce(inputs)
    wide = [one.astype(np.float64 if dtype.kind not in "iu" else np.int64) for one in inputs]
    if op in (Op.Min, Op.Max):
        return (np.minimum if op == Op.Min else np.maximum).reduce(wide).astype(dtype)
    if op == Op.Product:
        return np.multiply.reduce(wide).astype(dtype)
    total = np.add.reduce(wide)
    if op == Op.Sum:
        return total.astype(dtype)
    if dtype.kind in "iu":
        wrapped = total.astype(dtype).astype(np.int64)
        return (np.sign(wrapped) * (np.abs(wrapped) // size)).astype(dtype)
    quotient = total / size if dtype.itemsize == 8 else total.astype(np.float32) / np.float32(size)
    return quotient.astype(dtype)


def check_reduced(op: Op, inputs: list[np.ndarray[Any, Any]], result: np.ndarray[Any, Any]) -> None:
    expected = reduced(op, inputs)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


def same_bits(results: list[np.ndarray[Any, Any]]) -> bool:
    return len({result.tobytes() for result in results}) == 1
