"""Converts callers' arrays to the core's buffers (address, count and dtype), and makes arrays for results.

It accepts NumPy arrays (bfloat16 and the other dtypes of ml_dtypes included), and objects with the buffer protocol,
DLPack or ``__array_interface__``. Lists and scalars are accepted as input only. Arrays of GPUs (the folder device) and
of every family with a :class:`Kind`, such as torch tensors (ringcomm/_src/torch/kind.py), are accepted too. Results
are of the kind of the input, else NumPy arrays.

Dtypes of ``_core.DTYPES`` can be reduced (structured dtypes of a value and an index by MINLOC and MAXLOC). Every other
dtype of fixed size (datetime, structured) can only be moved, and is sent as bytes.

A framework's module attaches here: it calls :func:`register_kind`, and :data:`LAZY` names it, so that it is imported
when the framework's first array is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

from ringcomm._src.arrays.buffers import Buffer, Kind, Shape
from ringcomm._src.arrays.numpy_kind import NumPyKind

# ---- kinds -----------------------------------------------------------------------------------------------------------
LAZY = {
    "torch": "ringcomm._src.torch.kind"
}  # top-level package of an array's class -> the module that registers its kind

_kinds: list[tuple[Callable[[type], bool], type[Kind]]] = []
_kind_of: dict[type, type[Kind]] = {}


def register_kind(matches: Callable[[type], bool], kind: type[Kind]) -> None:
    """Registers `kind` for arrays of the classes that `matches` accepts; the last registered kind is tried first."""
    _kinds.insert(0, (matches, kind))
    _kind_of.clear()


def kind_of(x: Any) -> type[Kind]:
    """Returns the kind of an array; by default NumPyKind, which takes everything that converts to a NumPy array."""
    known = _kind_of.get(type(x))
    if known is None:
        for base in type(x).__mro__:
            if (module := LAZY.get(base.__module__.partition(".")[0])) is not None:
                importlib.import_module(module)
        known = next((kind for matches, kind in _kinds if matches(type(x))), NumPyKind)
        _kind_of[type(x)] = known
    return known


# ---- entry points ----------------------------------------------------------------------------------------------------
def source(x: Any) -> Buffer:
    """Returns the buffer of `x` for reading. Strided arrays are copied; lists and scalars become NumPy arrays."""
    return kind_of(x).source(x)


def target(x: Any, like: Buffer | None = None, shape: Shape | None = None) -> Buffer:
    """Returns the buffer of `x` for writing, or for reading and writing.

    With `like`, `x` must have its dtype, and the shape `shape` (by default like's shape).

    Raises TypeError for values without writable memory (lists, scalars), ValueError for a read-only array or a
    different dtype or shape.
    """
    made = kind_of(x).target(x)
    if like is not None:
        expected = like.shape if shape is None else shape
        if made.label != like.label or made.shape != expected:
            raise ValueError(
                f"the output must be {like.label} of shape {expected}, not {made.label} of shape {made.shape}"
            )
    return made


def pair(x: Any, out: Any = None, writes: bool = True) -> tuple[Buffer, Buffer]:
    """Returns (source, target) of a call whose result has x's shape.

    The target is `out`, which may be `x` (in place), or a new array if `out` is None. If `writes` is False, this rank
    has no result, and the target is the source.
    """
    if not writes:
        given = source(x)
        return given, given
    if out is x and out is not None:
        buffer = target(x)
        return buffer, buffer
    given = source(x)
    return given, result(out, given, given.shape)


def result(out: Any, like: Buffer, shape: Shape) -> Buffer:
    """Returns the buffer for a result of like's dtype: of `out`, checked, or of a new array if `out` is None."""
    return like.empty(shape) if out is None else target(out, like, shape)
