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

import hashlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core

if TYPE_CHECKING:
    from ringcomm._src.arrays.device.place import Place

_core.know_heads(np.empty(3, np.float32), np.empty)
BYTES = _core.DTYPES.index("uint8")
MOVES_ONLY = -1

Shape = tuple[int, ...]


class Kind(Protocol):
    """A family of arrays: what the core needs to know of one, and how to make one like another."""

    @staticmethod
    def source(x: Any) -> Buffer:
        """`x` to be read. What is not contiguous is copied. UnsupportedError (a TypeError) for what cannot be sent."""

    @staticmethod
    def target(x: Any) -> Buffer:
        """`x` to be written, or read and written. ValueError if it is read-only."""

    @staticmethod
    def describe(array: Any) -> Buffer:
        """Of an array that this kind has made."""

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        """A small NumPy array as one of this kind."""

    @staticmethod
    def like(x: Any) -> _core.Likeness | None:
        """What tells whether another array is like `x`, so that a request in place for `x` serves it too. None: the
        core has to look at each anew."""

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        """An uninitialised C-contiguous array of `like`'s dtype."""

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        """An array of `like`'s dtype over memory that lives as long as `owner`; no copy."""

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        """target[...] = source"""


class Buffer(NamedTuple):
    """A C-contiguous array and what the core needs to know of it."""

    address: int
    count: int  # type: ignore[assignment]  # elements, as the core counts them
    dtype: int  # index into _core.DTYPES; of uint8 if the dtype can only be moved
    width: int  # core elements per element of the array: 1, or its size in bytes if the dtype can only be moved
    shape: Shape
    array: Any  # keeps the memory
    kind: type[Kind]
    label: str  # the dtype's name
    given: Any = None  # the caller's array, to be returned when it has been written
    copied: bool = False  # `array` is a contiguous copy of `given`, to be written back
    place: Place | None = None  # of an array that is not in the host's memory
    keeps: Any = None  # what else must live as long

    @property
    def reducible(self) -> bool:
        return self.label == _core.DTYPES[self.dtype]

    def empty(self, shape: Shape | None = None) -> Buffer:
        """A new array of this kind and dtype."""
        shape = self.shape if shape is None else shape
        return self.kind.describe(self.kind.empty(self.array, shape))

    def on_host(self, what: str = "this", why: str = "it works on CPU arrays") -> Buffer:
        """This one, for what works on the host's memory alone: UnsupportedError for an array of a GPU."""
        if self.place is not None:
            raise UnsupportedError(
                f"{what}: the array lies on {self.place.name}, and {why}. Pass a copy in the host's memory "
                "(x.get(), tensor.cpu()) and copy the result back"
            )
        return self

    def write_back(self) -> Any:
        """To be called when the data is there; returns the caller's array."""
        if self.copied:
            self.kind.assign(self.given, self.array)
        return self.array if self.given is None else self.given


class Signature(NamedTuple):
    """What ranks compare of a shape: a hash of what must agree, and a text for messages."""

    hash: int
    text: str


_signatures: dict[tuple[Shape, str], Signature] = {}


def signature(shape: Shape, label: str = "") -> Signature:
    """Equal on every rank for equal arguments; remembered, for most programs use few shapes."""
    known = _signatures.get((shape, label))
    if known is None:
        if len(_signatures) > 10_000:
            _signatures.clear()
        text = f"{label} {shape}" if label else str(shape)
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        known = _signatures[shape, label] = Signature(int.from_bytes(digest, "little"), text)
    return known


def signature_of(buffer: Buffer, first: int = 0) -> Signature:
    """Of a buffer's dimensions from `first` on (1: the first dimension may differ between ranks)."""
    return signature(buffer.shape[first:], "" if buffer.reducible else buffer.label)


# ---- NumPy -----------------------------------------------------------------------------------------------------------
_dtypes: dict[np.dtype[Any], int] = {}


def dtype_index(dtype: np.dtype[Any]) -> int:
    """The core's index of a NumPy dtype, or MOVES_ONLY. Raises TypeError for what cannot travel at all."""
    known = _dtypes.get(dtype)
    if known is None:
        if not dtype.isnative:
            raise TypeError(
                f"ringcomm needs native byte order, not {dtype.str}; convert with x.astype(x.dtype.newbyteorder('='))"
            )
        if dtype.hasobject:
            raise TypeError("arrays of Python objects cannot be sent; ringcomm moves plain memory")
        if dtype.itemsize == 0:
            raise TypeError(f"elements of dtype {dtype!r} have no bytes")
        name = _pair_name(dtype) if dtype.names else dtype.name
        known = _core.DTYPES.index(name) if name in _core.DTYPES else MOVES_ONLY
        _dtypes[dtype] = known
    return known


def _pair_name(dtype: np.dtype[Any]) -> str:
    """The core's name of a pair of numbers, if C would lay it out so."""
    fields = list((dtype.fields or {}).values())  # dtype, offset
    alike = np.dtype([(str(i), field[0]) for i, field in enumerate(fields)], align=True)
    offsets = [field[1] for field in (alike.fields or {}).values()]
    laid_out = dtype.itemsize == alike.itemsize and offsets == [field[1] for field in fields]
    return f"({', '.join(field[0].name for field in fields)})" if laid_out else ""


class CoreMemory:
    """Memory of the core, given to NumPy without a copy."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


class NumPyKind:
    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        return np.empty(shape, like.dtype)

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        if nbytes == 0:
            return np.empty(shape, like.dtype)
        return np.asarray(CoreMemory(address, nbytes, owner)).view(like.dtype).reshape(shape)

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        target[...] = source

    @staticmethod
    def source(x: Any) -> Buffer:
        if elsewhere(x):
            return device_kind().source(x)
        array = x if isinstance(x, np.ndarray) else _foreign(x)
        dtype_index(array.dtype)  # refuses before anything is copied
        return _of_numpy(array if array.flags.c_contiguous else array.copy(order="C"))

    @staticmethod
    def target(x: Any) -> Buffer:
        if not isinstance(x, np.ndarray) and isinstance(x, list | tuple | int | float | complex | bool | bytes | str):
            raise TypeError(f"a {type(x).__name__} cannot be written in place; pass an array")
        if elsewhere(x):
            return device_kind().target(x)
        array = x if isinstance(x, np.ndarray) else _foreign(x)
        if not array.flags.writeable:
            raise ValueError("the array to write is read-only")
        return _of_numpy(array, x) if array.flags.c_contiguous else _of_numpy(array.copy(order="C"), array, True)

    @staticmethod
    def describe(array: Any) -> Buffer:
        return _of_numpy(array)

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        return array

    @staticmethod
    def like(x: Any) -> _core.Likeness | None:
        return _core.likeness_of(x)


def _of_numpy(array: np.ndarray[Any, Any], given: Any = None, copied: bool = False) -> Buffer:
    dtype = array.dtype
    index = dtype_index(dtype)
    address, _flags = _core.array_memory(array)
    if index != MOVES_ONLY:
        return Buffer(address, array.size, index, 1, array.shape, array, NumPyKind, _core.DTYPES[index], given, copied)
    return Buffer(
        address, array.nbytes, BYTES, dtype.itemsize, array.shape, array, NumPyKind, str(dtype), given, copied
    )


def elsewhere(x: Any) -> bool:
    """Whether it is an array of a device."""
    return not isinstance(x, np.ndarray) and (
        hasattr(x, "__cuda_array_interface__")
        or (hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] not in (1, 3))  # the CPU's, pinned or not
    )


def device_kind() -> Any:
    """Imported when the first such array comes."""
    return importlib.import_module("ringcomm._src.arrays.device.kind").DeviceKind


def _foreign(x: Any) -> np.ndarray[Any, Any]:
    """Anything else as a NumPy array, sharing memory where its protocol allows."""
    if isinstance(x, bytes | bytearray):
        return np.frombuffer(x, np.uint8)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)


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
