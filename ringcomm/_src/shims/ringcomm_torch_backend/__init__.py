"""Registers the backend ``ringcomm`` with torch.distributed.

torch calls :func:`register` when it is imported (entry point group ``torch.backends``). So this
package imports no module of ringcomm before the backend is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

NAME = "ringcomm"
_MPI_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def register() -> None:
    """Registers ``backend="ringcomm"`` and ``init_method="ringcomm://"`` with torch.distributed.

    ``env://``, the default, then needs no variables if an MPI launcher has started the ranks. A
    second call does nothing.

    Examples
    --------
    >>> ringcomm.torch.distributed.register()
    >>> "ringcomm" in torch.distributed.Backend.backend_list
    True
    """
    import torch.distributed as dist

    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    dist.register_rendezvous_handler(NAME, _by_mpi)
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    by_environment = handlers["env"]

    def env(url: str, **kwargs: Any) -> Any:
        alone = "RANK" not in os.environ and _is_for_ringcomm(sys._getframe())
        by_mpi = "MASTER_ADDR" not in os.environ and (launched_by_mpi() or alone)
        return _by_mpi(url, **kwargs) if by_mpi else by_environment(url, **kwargs)

    handlers["env"] = env


def launched_by_mpi() -> bool:
    """Returns True if an MPI launcher has started this process."""
    return any(name in os.environ for name in _MPI_VARIABLES)


def _is_for_ringcomm(frame: FrameType | None) -> bool:
    """Returns True if init_process_group was called with this backend.

    Reads the backend from the caller's frame, because torch does not pass it to rendezvous
    handlers.
    """
    while frame is not None and frame.f_code.co_name != "init_process_group":
        frame = frame.f_back
    return frame is not None and NAME in str(frame.f_locals.get("backend"))


def _create(options: Any, backend_options: Any) -> Any:
    return importlib.import_module("ringcomm._src.torch.distributed.backend").create(options)


def _by_mpi(url: str, **kwargs: Any) -> Iterator[Any]:
    rendezvous: Iterator[Any] = importlib.import_module("ringcomm._src.torch.distributed.backend").by_mpi(url, **kwargs)
    return rendezvous
