"""Arrays as the core sees them: an address, a count and a dtype; and results as their callers want them.

What can be given: NumPy arrays (bfloat16 and the other dtypes of ml_dtypes included), whatever speaks the buffer
protocol, DLPack or ``__array_interface__``, and for input only also lists and scalars; arrays of GPUs
(the folder device); and those of every family that has a :class:`Kind`: torch tensors (ringcomm/_src/torch/kind.py).
Results are of the kind that was given, else NumPy arrays.

Two classes of dtypes: those of ``_core.DTYPES`` can be reduced (structured ones of a value and an index by MINLOC and
MAXLOC); any other of fixed size (datetime, structured) can only be moved, and travels as its bytes.

This is the place where other frameworks attach: a module of theirs calls :func:`register_kind`, and :data:`LAZY` names
it, so that it is imported when the first of their arrays comes.
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
}  # by the first name of the module of an array's class: what registers its kind

_kinds: list[tuple[Callable[[type], bool], type[Kind]]] = []
_kind_of: dict[type, type[Kind]] = {}


def register_kind(matches: Callable[[type], bool], kind: type[Kind]) -> None:
    """Arrays of the classes that `matches` accepts are of this kind from now on; the last registered comes first."""
    _kinds.insert(0, (matches, kind))
    _kind_of.clear()


def kind_of(x: Any) -> type[Kind]:
    """NumPy's, which takes whatever can be seen as a NumPy array, if no other matches."""
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
    """`x` to be read. Strided arrays are copied; lists and scalars become NumPy arrays."""
    return kind_of(x).source(x)


def target(x: Any, like: Buffer | None = None, shape: Shape | None = None) -> Buffer:
    """`x` to be written, or read and written. With `like`, its dtype (and `shape`, by default like's shape) must be the
    same.

    Raises TypeError for what has no memory of its own (lists, scalars), ValueError for a read-only array or another
    dtype or shape.
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
    """(source, target) of a call whose result has x's shape: `out`, which may be `x` (in place), or None: a new array.
    Not `writes`: nothing comes of the call here, and the target is the source."""
    if not writes:
        given = source(x)
        return given, given
    if out is x and out is not None:
        buffer = target(x)
        return buffer, buffer
    given = source(x)
    return given, result(out, given, given.shape)


def result(out: Any, like: Buffer, shape: Shape) -> Buffer:
    """For a result of like's dtype: `out`, checked, or a new array if it is None."""
    return like.empty(shape) if out is None else target(out, like, shape)
