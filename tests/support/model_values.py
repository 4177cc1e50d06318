"""Values of the random programs of calls: dtypes, ops, layouts, and NumPy's results."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from reference import DTYPES, integers, reduced

from ringcomm._src.base.ops import Op

Array = np.ndarray[Any, Any]


def _last_but_zero(given: Array, into: Array) -> None:
    """Computes an associative function that depends on the order of its operands."""
    into[...] = np.where(into != 0, into, given)


LAST = Op.create(_last_but_zero, commutative=False)
WHOLE = [dtype for dtype in DTYPES if dtype.kind in "iub"]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
PAIRS = [np.dtype([("value", v), ("index", i)], align=True) for v, i in (("f4", "i4"), ("i8", "i4"), ("f8", "i8"))]
LISTED = [np.dtype(name) for name in ("int64", "float64", "bool", "complex128")]
BITWISE = {Op.BAND: np.bitwise_and, Op.BOR: np.bitwise_or, Op.BXOR: np.bitwise_xor}
LOGICAL = {Op.LAND: np.logical_and, Op.LOR: np.logical_or, Op.LXOR: np.logical_xor}
REDUCED: list[tuple[Any, np.dtype[Any]]] = [(Op.Sum, np.dtype(np.float32))]
REDUCED += [(op, dtype) for op in (Op.Sum, Op.Average, Op.Min, Op.Max, Op.Product) for dtype in DTYPES]
REDUCED += [(op, dtype) for op in (*BITWISE, *LOGICAL) for dtype in WHOLE]
REDUCED += [(op, dtype) for op in (Op.Sum, Op.Average, Op.Product) for dtype in COMPLEX]
REDUCED += [(op, dtype) for op in (Op.MINLOC, Op.MAXLOC) for dtype in PAIRS]
REDUCED += [(LAST, dtype) for dtype in (*DTYPES, *COMPLEX)]


def values(op: Any, dtype: np.dtype[Any], shape: tuple[int, ...], rank: int, seed: int) -> Array:
    """Returns numbers whose reduction over a few ranks is exact."""
    count = int(np.prod(shape))
    if dtype.names:
        pair = np.zeros(count, dtype)
        for number, field in enumerate(dtype.names):
            pair[field] = integers(np.dtype("i4"), count, rank, Op.Sum, seed + 1000 * number)
        return pair.reshape(shape)
    if dtype.kind == "c":
        real, imaginary = (integers(np.dtype("f8"), count, rank, op, seed + 1000 * number) for number in (0, 1))
        return (real + 1j * imaginary).astype(dtype).reshape(shape)
    return integers(dtype, count, rank, op, seed).reshape(shape)


def fold(op: Any, inputs: list[Array]) -> Array:
    """Returns the reduction of all `inputs`, in their order."""
    dtype, shape = inputs[0].dtype, inputs[0].shape
    flat = [x.ravel() for x in inputs]
    if op is LAST:
        result = functools.reduce(lambda a, b: np.where(b != 0, b, a), flat)
    elif op in BITWISE:
        result = BITWISE[op].reduce(flat)
    elif op in LOGICAL:
        result = LOGICAL[op].reduce(flat)
    elif dtype.names:
        result = functools.reduce(functools.partial(_first_pair, op), flat)
    elif dtype.kind == "c" and op == Op.Product:
        result = np.multiply.reduce([x.astype(np.complex128) for x in flat])
    elif dtype.kind == "c":
        half = np.dtype(f"f{dtype.itemsize // 2}")
        result = reduced(op, [x.view(half) for x in flat]).view(dtype)
    else:
        result = reduced(op, flat)
    return result.astype(dtype).reshape(shape)


def _first_pair(op: Op, a: Array, b: Array) -> Array:
    nearer = b["value"] < a["value"] if op == Op.MINLOC else b["value"] > a["value"]
    return np.where(nearer | ((a["value"] == b["value"]) & (b["index"] < a["index"])), b, a)


def laid_out(array: Array, layout: str, comm: Any) -> Any:
    """Returns a copy of `array` in this layout.

    "shared" means memory that the communicator's ranks share. "list" means lists of Python numbers,
    or one number, if NumPy makes an equal array of them.
    """
    if layout == "shared":
        copy = comm.empty(array.shape, array.dtype)
        copy[...] = array
        return copy
    if layout == "list" and array.size and array.dtype in LISTED:
        return array.tolist()
    if layout == "Fortran":
        return np.array(array, order="F")
    if layout == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if layout == "gaps":
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    if layout == "unaligned" and array.size:
        copy = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy
    copy = array.copy()
    copy.setflags(write=layout != "read-only")
    return copy


def agree(result: Any, expected: Array) -> bool:
    """Returns True if bits or numbers are equal (-0 and 0, and the gaps of structures)."""
    result = np.asarray(result)
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return False
    return result.tobytes() == expected.tobytes() or np.array_equal(result, expected)
