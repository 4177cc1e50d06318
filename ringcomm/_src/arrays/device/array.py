"""An array type in a GPU's memory, for programs that use neither CuPy nor a framework."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ringcomm._src.arrays.device import devices
from ringcomm._src.core import _core


class DeviceArray:
    """A C-contiguous array in the memory of one GPU. It has no arithmetic.

    CuPy, Numba, torch and JAX can use it through ``__cuda_array_interface__`` without a copy.

    Parameters
    ----------
    shape : int | tuple[int, ...]
        As for ``numpy.empty``.
    dtype
        Anything that ``numpy.dtype`` accepts, without Python objects.
    device : int
        Ordinal of the GPU.
    stream : int
        The driver's handle of the stream on which the array is used; default: the default stream.

    Examples
    --------
    On a host with GPUs::

        x = comm.empty(4, device="cuda")  # a DeviceArray if CuPy is not installed
        x.set(1)
        comm.allreduce(x, out=x)
        x.get().tolist()  # [2.0, 2.0, 2.0, 2.0] on two ranks
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: Any, device: int, stream: int = devices.LEGACY) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise TypeError("arrays of Python objects cannot be stored on a GPU")
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.device, self.stream = device, stream
        devices.count()
        self._memory = _core.DeviceMemory(device, self.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "strides": None,
            "stream": self.stream,
        }

    def get(self) -> np.ndarray[Any, Any]:
        """Returns a copy in the host's memory."""
        host = np.empty(self.shape, self.dtype)
        _core.device_copy(self.device, host.ctypes.data, self._memory.address, self.nbytes, self.stream, True)
        return host

    def set(self, values: Any) -> DeviceArray:
        """Copies ``values``, which broadcast to this shape, to the GPU. Returns this array."""
        host = np.ascontiguousarray(np.broadcast_to(np.asarray(values, self.dtype), self.shape))
        _core.device_copy(self.device, self._memory.address, host.ctypes.data, self.nbytes, self.stream, True)
        return self

    def synchronize(self) -> None:
        """Blocks until the work in the array's stream is done."""
        _core.device_copy(self.device, 0, 0, 0, self.stream, True)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<ringcomm.DeviceArray {self.dtype} {self.shape} on GPU {self.device}>"


def empty(shape: Any, dtype: Any, device: int, stream: int = devices.LEGACY) -> Any:
    """Returns a new CuPy array; without CuPy, or for a dtype that CuPy lacks, a DeviceArray."""
    try:
        import cupy
    except ImportError:
        return DeviceArray(shape, dtype, device, stream)
    with cupy.cuda.Device(device):
        try:
            return cupy.empty(shape, dtype)
        except (TypeError, ValueError):
            return DeviceArray(shape, dtype, device, stream)
