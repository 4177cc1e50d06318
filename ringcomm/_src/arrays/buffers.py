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
    """Interface of a family of arrays: describes arrays to the core, and makes similar arrays.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> class MyKind(bindings.NumPyKind):  # inherits the other functions of the interface
    ...     @staticmethod
    ...     def empty(like, shape):
    ...         return np.zeros(shape, like.dtype)
    >>> MyKind.empty(np.ones(2), (3,)).tolist()
    [0.0, 0.0, 0.0]
    """

    @staticmethod
    def source(x: Any) -> Buffer:
        """Returns the buffer of `x` for reading; an array that is not contiguous is copied.

        Raises UnsupportedError (a TypeError) for data that cannot be sent.
        """

    @staticmethod
    def target(x: Any) -> Buffer:
        """Returns the buffer of `x` for reading and writing. ValueError: `x` is read-only."""

    @staticmethod
    def describe(array: Any) -> Buffer:
        """Returns the buffer of an array that this kind has made."""

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        """Converts a small NumPy array to this kind."""

    @staticmethod
    def like(x: Any) -> _core.ArrayKey | None:
        """Returns a key that matches arrays for which an in-place request for `x` can be reused."""

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        """Returns an uninitialised C-contiguous array of `like`'s dtype."""

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        """Returns an array of `like`'s dtype with `owner`'s data; on the host, without a copy."""

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        """Performs target[...] = source."""


class Buffer(NamedTuple):
    """The core's description of a C-contiguous array; it keeps the array alive.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> buffer = bindings.NumPyKind.describe(np.ones(3))
    >>> buffer.shape, buffer.width, buffer.place
    ((3,), 1, None)
    """

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

    def on_host(self, what: str = "this call", why: str = "it works on CPU arrays only") -> Buffer:
        """Returns this buffer. Raises UnsupportedError for an array in a GPU's memory."""
        if self.place is not None:
            raise UnsupportedError(
                f"{what}: the array is on {self.place.name}, but {why}. Pass a copy in host memory "
                "(x.get(), tensor.cpu()), and copy the result back"
            )
        return self

    def write_back(self) -> Any:
        """Returns the caller's array, after copying the result to it if `array` is a copy."""
        if self.copied:
            self.kind.assign(self.given, self.array)
        return self.array if self.given is None else self.given


class Signature(NamedTuple):
    """The part of a shape and dtype that ranks compare: a hash, and a text for messages."""

    hash: int
    text: str


_signatures: dict[tuple[Shape, str], Signature] = {}


def signature(shape: Shape, label: str = "") -> Signature:
    """Returns the signature of a shape and label, identical on all ranks. It is cached."""
    known = _signatures.get((shape, label))
    if known is None:
        if len(_signatures) > 10_000:
            _signatures.clear()
        text = f"{label} {shape}" if label else str(shape)
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        known = _signatures[shape, label] = Signature(int.from_bytes(digest, "little"), text)
    return known


def signature_of(buffer: Buffer, first: int = 0) -> Signature:
    """Returns the signature of a buffer's dimensions from `first` on."""
    return signature(buffer.shape[first:], "" if buffer.reducible else buffer.label)
