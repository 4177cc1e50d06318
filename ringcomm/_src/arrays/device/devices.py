"""The GPUs of this process, by CUDA's driver, which is looked for when the first array of one comes."""

from __future__ import annotations

import functools
import os
import zlib
from pathlib import Path

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.config import config
from ringcomm._src.core import _core

LEGACY, PER_THREAD = 1, 2  # CUDA's names of default streams


@functools.cache
def count() -> int:
    """How many there are. UnsupportedError if there is no driver."""
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
    """How many there are, and why there are none ("" if there are)."""
    try:
        number = count()
    except UnsupportedError as error:
        return 0, str(error)
    return number, "" if number else "NVIDIA's driver shows no GPU"


def of_this_rank(local_rank: int | None = None) -> int:
    """The GPU that arrays made here lie on: the one used before, else by local rank (None: as launchers give it)."""
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


_mine: int | None = None  # that this process's arrays lie on


def require_one(device: int) -> None:
    """ValueError unless it is the one that the first call's arrays lay on: what ranks have agreed on for their GPUs
    holds for these. By way of the host, a rank may use several."""
    global _mine
    if _mine is None:
        _mine = device
    if device != _mine and config.from_environment().gpu_route != "staging":
        raise ValueError(
            f"the array lies on GPU {device}, and this rank has used GPU {_mine} before: give each rank one GPU (its "
            "local rank's), or set RINGCOMM_GPU_ROUTE=staging"
        )


def of_name(device: str | int, local_rank: int | None = None) -> int:
    """The ordinal of "cuda" (this rank's: :func:`of_this_rank`), "cuda:1" or 1.

    Raises ValueError for what is none, UnsupportedError if there is no driver."""
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
    """The ordinal of the GPU in whose memory an address lies; UnsupportedError if it is none's."""
    count()
    found = _core.device_of(address)
    if found < 0:
        raise UnsupportedError("the array says that it lies on a GPU, and CUDA's driver knows of no memory there")
    return found
