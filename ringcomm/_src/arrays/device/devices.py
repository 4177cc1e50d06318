"""The GPUs of this process, found through CUDA's driver.

The driver is loaded when the first array of a GPU is used.
"""

from __future__ import annotations

import functools
import os
import zlib
from pathlib import Path

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.config import config
from ringcomm._src.core import _core

LEGACY, PER_THREAD = 1, 2  # CUDA's handles of the default streams


@functools.cache
def count() -> int:
    """Returns the number of GPUs; loads the driver and the kernels. Raises UnsupportedError without a driver."""
    options = config.from_environment()
    try:
        found = _core.open_devices(options.cuda_library, options.nccl_library)
    except ValueError as error:
        raise UnsupportedError(f"arrays of GPUs need NVIDIA's driver: {error}") from None
    for module in Path(__file__).parent.glob("kernels_*.ptx.z"):
        name = module.name.removeprefix("kernels_").removesuffix(".ptx.z")
        _core.give_kernels(name, zlib.decompress(module.read_bytes()))
    return found


def found() -> tuple[int, str]:
    """Returns the number of GPUs, and the reason if there are none ("" otherwise)."""
    try:
        number = count()
    except UnsupportedError as error:
        return 0, str(error)
    return number, "" if number else "NVIDIA's driver shows no GPU"


def of_this_rank(local_rank: int | None = None) -> int:
    """Returns the ordinal of this rank's GPU: the GPU used before, else local rank modulo the number of GPUs.

    If `local_rank` is None, the launcher's environment variables give it.
    """
    if _mine is not None:
        return _mine
    if local_rank is None:
        local_rank = next((int(os.environ[name]) for name in _LOCAL_RANK if name in os.environ), 0)
    return local_rank % max(1, count())


_LOCAL_RANK = (
    "RINGCOMM_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "PALS_LOCAL_RANKID",
)


_mine: int | None = None  # ordinal of the GPU that this process uses


def require_one(device: int) -> None:
    """Raises ValueError unless `device` is the GPU of the first call: the ranks agreed on routes for that GPU.

    With the route "staging", a rank may use several GPUs.
    """
    global _mine
    if _mine is None:
        _mine = device
    if device != _mine and config.from_environment().gpu_route != "staging":
        raise ValueError(
            f"the array lies on GPU {device}, and this rank has used GPU {_mine} before: give each rank one GPU (its "
            "local rank's), or set RINGCOMM_GPU_ROUTE=staging"
        )


def of_name(device: str | int, local_rank: int | None = None) -> int:
    """Returns the ordinal of "cuda" (this rank's GPU, :func:`of_this_rank`), "cuda:1" or 1.

    Raises ValueError for any other device, UnsupportedError if there is no driver.
    """
    if isinstance(device, int):
        ordinal = device
    else:
        kind, _, number = str(device).partition(":")
        if kind not in ("cuda", "gpu") or not (number == "" or number.isdecimal()):
            raise ValueError(f'a device is "cpu", "cuda" or "cuda:0", ...; not {device!r}')
        if number == "":
            return of_this_rank(local_rank)
        ordinal = int(number)
    if not 0 <= ordinal < count():
        raise ValueError(f"there is no GPU {ordinal} here: CUDA's driver shows {count()}")
    return ordinal


def holds(address: int) -> int:
    """Returns the ordinal of the GPU that owns the memory at an address. Raises UnsupportedError if no GPU does."""
    count()
    found = _core.device_of(address)
    if found < 0:
        raise UnsupportedError("the array says that it lies on a GPU, and CUDA's driver knows of no memory there")
    return found
