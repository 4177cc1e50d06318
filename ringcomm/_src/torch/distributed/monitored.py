"""A barrier that names the ranks that have not entered it.

It exists because torch.distributed's ``monitored_barrier`` accepts Gloo only.
"""

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
    """Returns when every rank has entered, like ``torch.distributed.monitored_barrier``.

    Args:
        group: a group of the backend ringcomm; None: the default one.
        timeout: how long to wait; None: the group's timeout.
        wait_all_ranks: name all ranks that have not entered by then, instead of only the first.

    Raises:
        RuntimeError: on rank 0, with the ranks that have not entered; on other ranks, if rank 0 does not
            answer.
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
