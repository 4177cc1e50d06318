"""The core's description of an array (Buffer), and the interface of a family of arrays (Kind).

It also holds signatures: hashes of shapes and dtypes that ranks compare in the consistency check.
"""

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
    """Interface of a family of arrays: describes an array to the core, and makes arrays like a given array."""

    @staticmethod
    def source(x: Any) -> Buffer:
        """Returns the buffer of `x` for reading; an array that is not contiguous is copied.

        Raises UnsupportedError (a TypeError) for data that cannot be sent.
        """

    @staticmethod
    def target(x: Any) -> Buffer:
        """Returns the buffer of `x` for writing, or for reading and writing. Raises ValueError if it is read-only."""

    @staticmethod
    def describe(array: Any) -> Buffer:
        """Returns the buffer of an array that this kind has made."""

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        """Converts a small NumPy array to this kind."""

    @staticmethod
    def like(x: Any) -> _core.ArrayKey | None:
        """Returns the key of arrays that can reuse an in-place request for `x`; None if arrays have no such key."""

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        """Returns an uninitialised C-contiguous array of `like`'s dtype."""

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        """Returns an array of `like`'s dtype over memory that `owner` keeps alive. On the host, nothing is copied."""

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        """Performs target[...] = source."""


class Buffer(NamedTuple):
    """The core's description of a C-contiguous array; it keeps the array alive."""

    address: int
    count: int  # type: ignore[assignment]  # number of core elements
    dtype: int  # index into _core.DTYPES; that of uint8 if the dtype can only be moved
    width: int  # core elements per element of the array: 1, or its size in bytes if the dtype can only be moved
    shape: Shape
    array: Any  # owns the memory
    kind: type[Kind]
    label: str  # the dtype's name
    given: Any = None  # the caller's array, returned as the result
    copied: bool = False  # `array` is a contiguous copy of `given` that write_back() copies to it
    place: MemoryLocation | None = None  # location in device memory; None: host memory
    keeps: Any = None  # another object that must live as long as the buffer

    @property
    def reducible(self) -> bool:
        return self.label == _core.DTYPES[self.dtype]

    def empty(self, shape: Shape | None = None) -> Buffer:
        """Returns the buffer of a new, uninitialised array of this kind and dtype."""
        shape = self.shape if shape is None else shape
        return self.kind.describe(self.kind.empty(self.array, shape))

    def on_host(self, what: str = "this", why: str = "it works on CPU arrays") -> Buffer:
        """Returns this buffer. Raises UnsupportedError, with `what` and `why`, for an array in a GPU's memory."""
        if self.place is not None:
            raise UnsupportedError(
                f"{what}: the array lies on {self.place.name}, and {why}. Pass a copy in the host's memory "
                "(x.get(), tensor.cpu()) and copy the result back"
            )
        return self

    def write_back(self) -> Any:
        """Copies the finished result to the caller's array if `array` is a copy, and returns the caller's array."""
        if self.copied:
            self.kind.assign(self.given, self.array)
        return self.array if self.given is None else self.given


class Signature(NamedTuple):
    """The part of a shape and dtype that ranks compare: a hash, and a text for messages."""

    hash: int
    text: str


_signatures: dict[tuple[Shape, str], Signature] = {}


def signature(shape: Shape, label: str = "") -> Signature:
    """Returns the signature of a shape and label, identical on all ranks. Cached: most programs use few shapes."""
    known = _signatures.get((shape, label))
    if known is None:
        if len(_signatures) > 10_000:
            _signatures.clear()
        text = f"{label} {shape}" if label else str(shape)
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        known = _signatures[shape, label] = Signature(int.from_bytes(digest, "little"), text)
    return known


def signature_of(buffer: Buffer, first: int = 0) -> Signature:
    """Returns the signature of a buffer's dimensions from `first` on (1: the first may differ between ranks)."""
    return signature(buffer.shape[first:], "" if buffer.reducible else buffer.label)
