"""Arrays as the core sees them: an address, a count and a dtype; and results as their callers want them.

What can be given: NumPy arrays (bfloat16 and the other dtypes of ml_dtypes included), whatever speaks the buffer
protocol, DLPack (on
the CPU) or ``__array_interface__``, torch tensors on the CPU, and for input only also lists and scalars. Results are of
the kind
that was given: a torch tensor for a torch tensor, else a NumPy array.

Two classes of dtypes: those of ``_core.DTYPES`` can be reduced; any other of fixed size (complex, datetime, structured)
can only be
moved, and travels as its bytes.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, NamedTuple, Protocol

import numpy as np

from ringcomm import _core
from ringcomm.errors import UnsupportedError

_core.know_heads(np.empty(3, np.float32), np.empty)
BYTES = _core.DTYPES.index("uint8")
MOVES_ONLY = -1

Shape = tuple[int, ...]


class Kind(Protocol):
    """A family of arrays: how to make one like another."""

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

    @property
    def reducible(self) -> bool:
        return self.label == _core.DTYPES[self.dtype]

    def empty(self, shape: Shape | None = None) -> Buffer:
        """A new array of this kind and dtype."""
        shape = self.shape if shape is None else shape
        return describe(self.kind.empty(self.array, shape))

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
        known = _core.DTYPES.index(dtype.name) if dtype.name in _core.DTYPES else MOVES_ONLY
        _dtypes[dtype] = known
    return known


class _CoreMemory:
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
        return np.asarray(_CoreMemory(address, nbytes, owner)).view(like.dtype).reshape(shape)

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        target[...] = source


def _of_numpy(array: np.ndarray[Any, Any], given: Any = None, copied: bool = False) -> Buffer:
    dtype = array.dtype
    index = dtype_index(dtype)
    address, _flags = _core.array_memory(array)
    if index != MOVES_ONLY:
        return Buffer(address, array.size, index, 1, array.shape, array, NumPyKind, _core.DTYPES[index], given, copied)
    return Buffer(
        address, array.nbytes, BYTES, dtype.itemsize, array.shape, array, NumPyKind, str(dtype), given, copied
    )


def _foreign(x: Any) -> np.ndarray[Any, Any]:
    """Anything else as a NumPy array, sharing memory where its protocol allows."""
    if hasattr(x, "__cuda_array_interface__") or (
        hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] not in (1, 3)
    ):
        raise UnsupportedError(f"{type(x).__name__} lies in device memory; copy it to the host first")
    if isinstance(x, bytes | bytearray):
        return np.frombuffer(x, np.uint8)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)


# ---- torch, if the program has imported it ---------------------------------------------------------------------------
_known_torch_dtypes: dict[Any, tuple[int, int, str]] = {}


def _torch_dtype(dtype: Any) -> tuple[int, int, str]:
    """(core index, core elements per element, name)"""
    known = _known_torch_dtypes.get(dtype)
    if known is None:
        name = str(dtype).removeprefix("torch.")
        reducible = name in _core.DTYPES
        known = (_core.DTYPES.index(name), 1, name) if reducible else (BYTES, dtype.itemsize, name)
        _known_torch_dtypes[dtype] = known
    return known


class TorchKind:
    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        return sys.modules["torch"].empty(shape, dtype=like.dtype)

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        if nbytes == 0:
            return TorchKind.empty(like, shape)
        return (
            sys.modules["torch"]
            .from_numpy(np.asarray(_CoreMemory(address, nbytes, owner)))
            .view(like.dtype)
            .reshape(shape)
        )

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        target.detach().copy_(source)


def is_torch(x: Any) -> bool:
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(x, tensor)


def is_plain_tensor(x: Any) -> bool:
    """Whether it is of torch's own types, and the core works in its memory: no copy in between."""
    torch = sys.modules.get("torch")
    if torch is None or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return bool(x.is_cpu and x.layout is torch.strided and x.is_contiguous() and not (x.is_neg() or x.is_conj()))


def _of_torch(tensor: Any, given: Any = None, copied: bool = False) -> Buffer:
    index, width, name = _torch_dtype(tensor.dtype)
    count = tensor.numel()
    return Buffer(
        tensor.data_ptr(), count * width, index, width, tuple(tensor.shape), tensor, TorchKind, name, given, copied
    )


def _check_torch(tensor: Any) -> None:
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"the tensor lies on {tensor.device}; ringcomm moves CPU memory: pass tensor.cpu()")
    if tensor.is_sparse or tensor.is_quantized:
        raise UnsupportedError("sparse and quantized tensors cannot be sent; pass a dense one")


# ---- entry points ----------------------------------------------------------------------------------------------------
def describe(array: Any) -> Buffer:
    """Of an array that is known to be C-contiguous and its own kind's."""
    return _of_numpy(array) if isinstance(array, np.ndarray) else _of_torch(array)


def source(x: Any) -> Buffer:
    """`x` to be read. Strided arrays are copied; lists and scalars become NumPy arrays."""
    if is_torch(x):
        _check_torch(x)
        tensor = x.detach().resolve_conj().resolve_neg()
        return _of_torch(tensor.contiguous())
    array = x if isinstance(x, np.ndarray) else _foreign(x)
    dtype_index(array.dtype)  # refuses before anything is copied
    return _of_numpy(array if array.flags.c_contiguous else array.copy(order="C"))


def target(x: Any, like: Buffer | None = None, shape: Shape | None = None) -> Buffer:
    """`x` to be written, or read and written. With `like`, its dtype (and `shape`, by default like's shape) must be the
    same.

    Raises TypeError for what has no memory of its own (lists, scalars), ValueError for a read-only array or another
    dtype or shape.
    """
    if is_torch(x):
        _check_torch(x)
        tensor = x.detach()
        plain = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
        made = _of_torch(tensor if plain else tensor.resolve_conj().resolve_neg().contiguous(), x, not plain)
    else:
        if not isinstance(x, np.ndarray) and isinstance(x, list | tuple | int | float | complex | bool | bytes | str):
            raise TypeError(f"a {type(x).__name__} cannot be written in place; pass an array")
        array = x if isinstance(x, np.ndarray) else _foreign(x)
        if not array.flags.writeable:
            raise ValueError("the array to write is read-only")
        plain = array.flags.c_contiguous
        made = _of_numpy(array, x) if plain else _of_numpy(array.copy(order="C"), array, True)
    if like is not None:
        expected = like.shape if shape is None else shape
        if made.label != like.label or made.shape != expected:
            raise ValueError(
                f"the output must be {like.label} of shape {expected}, not {made.label} of shape {made.shape}"
            )
    return made


def like_kind(array: np.ndarray[Any, Any], like: Buffer) -> Any:
    """A small NumPy array as one of `like`'s kind."""
    return sys.modules["torch"].from_numpy(array) if like.kind is TorchKind else array


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
