"""Converts callers' arrays to the core's buffers, and makes arrays for results.

It accepts NumPy arrays, including ml_dtypes, and objects with the buffer protocol, DLPack or
``__array_interface__``; lists and scalars as input only. It also accepts GPU arrays, and arrays of
every family with a :class:`Kind`, for example torch tensors. Results have the kind of the input.

Dtypes of ``_core.DTYPES`` can be reduced. Every other dtype of fixed size is sent as bytes.
:data:`KIND_MODULES` names frameworks' modules, which call :func:`register_kind` when imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ringcomm._src.arrays.buffers import Buffer, Kind, Shape
from ringcomm._src.arrays.numpy_kind import NumPyKind

# ---- kinds -----------------------------------------------------------------------------------------------------------
# Top-level package of an array's class -> the module that registers its kind.
KIND_MODULES = {"torch": "ringcomm._src.torch.kind"}

_kinds: list[tuple[Callable[[type], bool], type[Kind]]] = []
_kind_of: dict[type, type[Kind]] = {}


def register_kind(matches: Callable[[type], bool], kind: type[Kind]) -> None:
    """Registers `kind` for arrays of classes that `matches` accepts; later kinds are tried first.

    Examples
    --------
    >>> class Vector(np.ndarray): ...
    >>> from ringcomm import bindings
    >>> bindings.register_kind(lambda cls: cls is Vector, bindings.NumPyKind)
    """
    _kinds.insert(0, (matches, kind))
    _kind_of.clear()


def kind_of(x: Any) -> type[Kind]:
    """Returns the kind of an array. NumPyKind, the default, takes whatever NumPy can convert."""
    known = _kind_of.get(type(x))
    if known is None:
        for base in type(x).__mro__:
            if (module := KIND_MODULES.get(base.__module__.partition(".")[0])) is not None:
                importlib.import_module(module)
        known = next((kind for matches, kind in _kinds if matches(type(x))), NumPyKind)
        _kind_of[type(x)] = known
    return known


# ---- entry points ----------------------------------------------------------------------------------------------------
def source(x: Any) -> Buffer:
    """Returns the buffer of `x` for reading. Strided arrays, lists and scalars are copied."""
    return kind_of(x).source(x)


def target(x: Any, like: Buffer | None = None, shape: Shape | None = None) -> Buffer:
    """Returns the buffer of `x` for writing, or for reading and writing.

    If `like` is given, `x` must have like's dtype, and the shape `shape` (None: like's). Raises
    TypeError for lists and scalars, ValueError if `x` is read-only or its dtype or shape is wrong.
    """
    buffer = kind_of(x).target(x)
    if like is not None:
        expected = like.shape if shape is None else shape
        if buffer.label != like.label or buffer.shape != expected:
            raise ValueError(
                f"the output must be {like.label} of shape {expected}, not {buffer.label} of shape {buffer.shape}"
            )
    return buffer


def pair(x: Any, out: Any = None, writes: bool = True) -> tuple[Buffer, Buffer]:
    """Returns (source, target) of a call whose result has x's shape.

    `out` may be `x` (in place); None: a new array. `writes`: this rank has a result; if not, the
    target is the source.
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
    """Returns the buffer for a result of like's dtype: of `out`, after checks; None: a new one."""
    return like.empty(shape) if out is None else target(out, like, shape)
