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
    """Loads driver and kernels; returns the number of GPUs. UnsupportedError: no driver."""
    options = config.from_environment()
    try:
        number = _core.open_devices(options.cuda_library, options.nccl_library)
    except ValueError as error:
        raise UnsupportedError(f"GPU arrays need NVIDIA's driver: {error}") from None
    for module in Path(__file__).parent.glob("kernels_*.ptx.z"):
        name = module.name.removeprefix("kernels_").removesuffix(".ptx.z")
        _core.give_kernels(name, zlib.decompress(module.read_bytes()))
    return number


def count_or_reason() -> tuple[int, str]:
    """Returns the number of GPUs, and the reason if there are none ("" otherwise)."""
    try:
        number = count()
    except UnsupportedError as error:
        return 0, str(error)
    return number, "" if number else "NVIDIA's driver reports no GPU"


def of_this_rank(local_rank: int | None = None) -> int:
    """Returns the ordinal of this rank's GPU.

    If this process has used a GPU, it is that GPU. Otherwise its ordinal is the local rank modulo
    the number of GPUs. If `local_rank` is None, the launcher's environment variables give it.
    """
    if _used_device is not None:
        return _used_device
    if local_rank is None:
        local_rank = next((int(os.environ[name]) for name in _LOCAL_RANK_VARIABLES if name in os.environ), 0)
    return local_rank % max(1, count())


_LOCAL_RANK_VARIABLES = (
    "RINGCOMM_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "PALS_LOCAL_RANKID",
)


_used_device: int | None = None  # ordinal of the GPU that this process uses


def require_same_device(device: int) -> None:
    """Raises ValueError unless `device` is the GPU of the first call.

    The ranks agreed on routes for that GPU. With the route "staging", a rank may use several GPUs.
    """
    global _used_device
    if _used_device is None:
        _used_device = device
    if device != _used_device and config.from_environment().gpu_route != "staging":
        raise ValueError(
            f"the array is on GPU {device}, but this rank has used GPU {_used_device} before: use one GPU per rank "
            "(that of its local rank), or set RINGCOMM_GPU_ROUTE=staging"
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
            raise ValueError(f'device must be "cpu", "cuda", "cuda:0", "cuda:1" and so on, not {device!r}')
        if number == "":
            return of_this_rank(local_rank)
        ordinal = int(number)
    if not 0 <= ordinal < count():
        raise ValueError(f"there is no GPU {ordinal} here: the CUDA driver reports {count()}")
    return ordinal


def device_of_address(address: int) -> int:
    """Returns the ordinal of the GPU that owns an address. UnsupportedError: no GPU owns it."""
    count()
    device = _core.device_of(address)
    if device < 0:
        raise UnsupportedError("the array is marked as GPU memory, but the CUDA driver has no memory at its address")
    return device
