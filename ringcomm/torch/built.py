"""What this build can do, in Horovod's words."""

from __future__ import annotations

import importlib

import torch

from ringcomm.links import MpiLink
from ringcomm.process_sets import global_process_set
from ringcomm.runtime import is_initialized


def mpi_built(verbose: bool = False) -> bool:
    """Whether ringcomm can use MPI: always, for it needs none to be built."""
    return True


def mpi_enabled() -> bool:
    """Whether this run uses MPI: not before ``init()``, nor where mpi4py finds none, which leaves one rank."""
    return is_initialized() and isinstance(global_process_set.session().link, MpiLink)


def gloo_built(verbose: bool = False) -> bool:
    """Never: ringcomm does not use Gloo."""
    return False


def gloo_enabled() -> bool:
    """Never: ringcomm does not use Gloo."""
    return False


def nccl_built(verbose: bool = False) -> int:
    """The version of NCCL in use; 0: none."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Never: ringcomm does not use IBM's DDL."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Never: ringcomm does not use Intel's oneCCL."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """Whether tensors in CUDA memory are taken: not in this version."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Whether tensors in ROCm memory are taken: not in this version."""
    return False


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether PyTorch sees a GPU; this version of ringcomm does not use it."""
    return torch.cuda.is_available()


def check_extension(ext_name: str = "ringcomm.torch", *_: object) -> None:
    """Raises ImportError if a binding cannot be used here. ``ext_name``: its module; further arguments of Horovod's
    mean nothing, for no binding is compiled."""
    importlib.import_module(ext_name.replace("horovod", "ringcomm", 1))


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two. (Nothing here needs that.)"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
