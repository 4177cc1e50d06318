"""The GPUs of this process, by CUDA's driver, which is looked for when the first array of one comes."""

from __future__ import annotations

import functools
import os
import zlib
from pathlib import Path

from ringcomm import _core, config
from ringcomm.errors import UnsupportedError

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


def of_this_rank() -> int:
    """By local rank, as launchers give them: the GPU that arrays made here lie on."""
    rank = next((int(os.environ[name]) for name in _LOCAL_RANK if name in os.environ), 0)
    return rank % max(1, count())


_LOCAL_RANK = (
    "RINGCOMM_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "PALS_LOCAL_RANKID",
)


def of_name(device: str | int, local_rank: int | None = None) -> int:
    """The ordinal of "cuda" (that of a local rank; None: this process's as its launcher says), "cuda:1" or 1.

    Raises ValueError for what is none, UnsupportedError if there is no driver."""
    if isinstance(device, int):
        ordinal = device
    else:
        kind, _, number = str(device).partition(":")
        if kind not in ("cuda", "gpu") or not (number == "" or number.isdecimal()):
            raise ValueError(f'a device is "cpu", "cuda" or "cuda:0", ...; not {device!r}')
        if number == "":
            return of_this_rank() if local_rank is None else local_rank % max(1, count())
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
