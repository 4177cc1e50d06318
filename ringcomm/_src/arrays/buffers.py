"""The core's description of an array (Buffer), and the interface of a family of arrays (Kind)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core

if TYPE_CHECKING:
    from ringcomm._src.arrays.device.location import MemoryLocation

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
    def like(x: Any) -> _core.ArrayKey | None:
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
    place: MemoryLocation | None = None  # of an array that is not in the host's memory
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
