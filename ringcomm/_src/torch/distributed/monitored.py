"""A barrier that names who has not come. torch.distributed's own asks for Gloo by name."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist

from ringcomm._src.arrays.device.messages import DeviceMessageRequest
from ringcomm._src.core._core import MessageRequest
from ringcomm._src.torch.distributed.messages import TAGS
from ringcomm._src.torch.distributed.process_group import ProcessGroup

_COME, _GO = TAGS, TAGS + 1  # tags


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """As ``torch.distributed.monitored_barrier``: returns when every rank has come.

    Args:
        group: of the backend ringcomm; None: the default one.
        timeout: how long to wait; None: the group's.
        wait_all_ranks: name all ranks that have not come by then, not the first of them only.

    Raises:
        RuntimeError: on rank 0, naming ranks that have not come; on the others, that rank 0 does not answer.
        TypeError: the group is of another backend.
    """
    group = group if group is not None else dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"monitored_barrier needs a process group of the backend ringcomm, not {group!r}")
    seconds = group._seconds if timeout is None else timeout.total_seconds()
    deadline, ranks, word = time.monotonic() + seconds, group._group, np.zeros(1, np.uint8)
    if ranks.rank > 0:
        ranks.isend(word, 0, _COME)
        if not _comes(ranks.irecv(word, 0, _GO), deadline):
            raise RuntimeError(f"monitored_barrier: rank {ranks.rank} was not let through within {seconds:g} s")
        return
    coming = {other: ranks.irecv(word, other, _COME) for other in range(1, ranks.size)}
    missing = []
    for other, request in coming.items():
        if not _comes(request, deadline):
            missing.append(other)
            if not wait_all_ranks:
                break
    if missing:
        for request in coming.values():
            request.cancel()
        raise RuntimeError(f"monitored_barrier: ranks {missing} have not come within {seconds:g} s")
    for other in coming:
        ranks.isend(word, other, _GO)


def _comes(request: MessageRequest | DeviceMessageRequest, deadline: float) -> bool:
    try:
        request.wait(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        request.cancel()
        return False
    return True
