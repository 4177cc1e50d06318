"""What this build can do, in Horovod's words, and small helpers that libraries import from ``horovod.common.util``."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringcomm._src.base.ops import chosen_op
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.named.runtime import is_initialized
from ringcomm._src.platform.mpi_link import MpiLink


def mpi_built(verbose: bool = False) -> bool:
    """Whether ringcomm can use MPI: always, for it needs none to be built."""
    return True


def mpi_enabled() -> bool:
    """Whether this run uses MPI: not before ``init()``, nor where mpi4py finds none, which leaves one rank."""
    return is_initialized() and isinstance(global_process_set.session().link, MpiLink)


def not_built(verbose: bool = False) -> bool:
    """Never: neither Gloo, NCCL, IBM's DDL nor Intel's oneCCL is used, nor memory of ROCm taken."""
    return False


gloo_built = gloo_enabled = nccl_built = ddl_built = ccl_built = rocm_built = not_built


def cuda_built(verbose: bool = False) -> bool:
    """Whether ringcomm can take arrays in the memory of CUDA's GPUs: always, for it needs nothing of CUDA to be built,
    and looks for the driver when the first such array comes. Whether there is a GPU, :func:`gpu_available` tells."""
    return True


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether PyTorch, if the program has imported it, sees a GPU, whose tensors ringcomm takes. Of other frameworks
    (``ext_base_name``): False, for what they have on a GPU comes to ringcomm by way of the host's memory."""
    torch = sys.modules.get("torch") if ext_base_name.rpartition(".")[2] == "torch" else None
    return torch is not None and torch.cuda.is_available()


def check_extension(ext_name: str = "ringcomm.torch", *_: object) -> None:
    """Raises ImportError if a binding cannot be used here. ``ext_name``: its module; further arguments of Horovod's
    mean nothing, for no binding is compiled."""
    importlib.import_module(ext_name.replace("horovod", "ringcomm", 1))


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether there is a binding for this framework, and the framework."""
    try:
        check_extension(f"ringcomm.{ext_base_name}")
    except ImportError:
        return False
    return True


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Does nothing: no binding is built for one version of a framework."""


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """The function of (op, average) that gives the reduction meant; ``reduce_ops`` has its names."""
    return chosen_op


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two. (Nothing here needs that.)"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], n: int) -> list[Any]:
    """``n`` consecutive parts whose lengths differ by one at most, the longer ones first."""
    share, rest = divmod(len(items), n)
    ends = [share * part + min(part, rest) for part in range(n + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(ends)]


def is_iterable(x: Any) -> bool:
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether a version is at least ``target``, which has three parts. Raises ValueError for anything else."""
    if not (isinstance(ver, str) and isinstance(target, str)):
        raise ValueError(f"versions are strings, not {type(ver).__name__} and {type(target).__name__}")
    if len(target.split(".")) != 3:
        raise ValueError(f"the version to compare with has the form major.minor.patch, not {target}")
    version = importlib.import_module("packaging.version")  # no framework is without it
    return bool(version.parse(ver) >= version.parse(target))


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Within it these environment variables are set; those that are None stay as they are."""
    before = {name: os.environ.get(name) for name, value in variables.items() if value is not None}
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
