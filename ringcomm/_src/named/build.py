"""Queries of this build's features, and the helpers of ``horovod.common.util``."""

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
    """Returns True: ringcomm loads MPI at run time, and is built without it.

    Parameters
    ----------
    verbose : bool
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> hvd.mpi_built()
    True
    """
    return True


def mpi_enabled() -> bool:
    """Returns True if this run uses MPI.

    Returns False before ``init()``, and if mpi4py finds no MPI: the job then has one rank.

    Examples
    --------
    >>> hvd.mpi_enabled()
    True
    """
    return is_initialized() and isinstance(global_process_set.session().link, MpiLink)


def not_built(verbose: bool = False) -> bool:
    """Returns False: ringcomm is built without Gloo, NCCL, IBM's DDL, Intel's oneCCL and ROCm.

    Parameters
    ----------
    verbose : bool
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> hvd.gloo_built(), hvd.nccl_built()
    (False, False)
    """
    return False


gloo_built = gloo_enabled = nccl_built = ddl_built = ccl_built = rocm_built = not_built


def cuda_built(verbose: bool = False) -> bool:
    """Returns True: ringcomm supports arrays in the memory of CUDA GPUs.

    It is built without CUDA, and loads the driver when the first GPU array is used. See
    :func:`gpu_available`.

    Parameters
    ----------
    verbose : bool
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> hvd.cuda_built()
    True
    """
    return True


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Returns True if the program has imported PyTorch, and PyTorch sees a GPU.

    ringcomm communicates PyTorch tensors of that GPU directly.

    Parameters
    ----------
    ext_base_name : str
        Module of the framework. The result is False for all frameworks except torch: their GPU
        tensors are staged through host memory.
    verbose : bool
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> hvd.gpu_available("tensorflow")
    False
    """
    torch = sys.modules.get("torch") if ext_base_name.rpartition(".")[2] == "torch" else None
    return torch is not None and torch.cuda.is_available()


def check_extension(ext_name: str = "ringcomm.torch", *_: object) -> None:
    """Raises ImportError if a binding cannot be imported.

    Parameters
    ----------
    ext_name : str
        Name of the module, for example "ringcomm.torch" or "horovod.torch" (the same binding).
        Horovod's further arguments are ignored, because no binding is compiled.

    Raises
    ------
    ImportError
        The framework is not installed, or there is no binding for it.

    Examples
    --------
    >>> hvd.check_extension(hvd.__name__)
    """
    importlib.import_module(ext_name.replace("horovod", "ringcomm", 1))


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns True if there is a binding for this framework, and the framework is installed.

    Examples
    --------
    >>> from ringcomm.common.util import extension_available
    >>> extension_available("mxnet")
    False
    """
    try:
        check_extension(f"ringcomm.{ext_base_name}")
    except ImportError:
        return False
    return True


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Does nothing: no binding is built for one version of a framework.

    Parameters
    ----------
    name, version, exception
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> hvd.check_installed_version("framework", "1.0")
    """


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """Returns the function of (op, average) that selects the reduction op.

    Parameters
    ----------
    reduce_ops
        Ignored; for compatibility with Horovod.

    Examples
    --------
    >>> choose = hvd.get_average_backwards_compatibility_fun(None)
    >>> choose(None, True) == hvd.Average
    True
    """
    return chosen_op


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns True if a number of ranks is a power of two. Ringcomm runs with any number.

    Examples
    --------
    >>> hvd.num_rank_is_power_2(8), hvd.num_rank_is_power_2(6)
    (True, False)
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], n: int) -> list[Any]:
    """Returns ``n`` consecutive parts; their lengths differ by at most one, longer parts first.

    Examples
    --------
    >>> from ringcomm.common.util import split_list
    >>> split_list([1, 2, 3, 4, 5], 2)
    [[1, 2, 3], [4, 5]]
    """
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
    """Returns True if a version is at least ``target``, which has the form major.minor.patch.

    Examples
    --------
    >>> from ringcomm.common.util import is_version_greater_equal_than
    >>> is_version_greater_equal_than("2.13.0", "2.4.0")
    True
    """
    if not (isinstance(ver, str) and isinstance(target, str)):
        raise ValueError(f"both versions must be strings, not {type(ver).__name__} and {type(target).__name__}")
    if len(target.split(".")) != 3:
        raise ValueError(f"target must have the form major.minor.patch, not {target}")
    version = importlib.import_module("packaging.version")  # every framework installs it
    return bool(version.parse(ver) >= version.parse(target))


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Sets environment variables inside the block; variables that are None are not changed.

    Examples
    --------
    >>> import os
    >>> from ringcomm.common.util import env
    >>> with env(MY_SETTING="1"):
    ...     os.environ["MY_SETTING"]
    '1'
    """
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
