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

_ENTERED, _RELEASED = TAGS, TAGS + 1  # tags


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """Returns when every rank has entered, like ``torch.distributed.monitored_barrier``.

    Parameters
    ----------
    group : ProcessGroup | None
        A group of the backend ringcomm; None: the default one.
    timeout : timedelta | None
        Longest time to wait; None: the group's timeout.
    wait_all_ranks : bool
        True: the error names all ranks that have not entered in time. False: only the lowest.

    Raises
    ------
    RuntimeError
        On rank 0, if ranks have not entered in time; the text names them. On other ranks, if rank 0
        does not answer in time.
    TypeError
        The group is of another backend.

    Examples
    --------
    >>> import torch.distributed as dist
    >>> from ringcomm.torch.distributed import monitored_barrier
    >>> dist.init_process_group("ringcomm")
    >>> monitored_barrier()
    >>> dist.destroy_process_group()
    """
    group = group if group is not None else dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"monitored_barrier needs a process group of the backend ringcomm, not {group!r}")
    seconds = group._seconds if timeout is None else timeout.total_seconds()
    deadline, ranks, token = time.monotonic() + seconds, group._group, np.zeros(1, np.uint8)
    if ranks.rank > 0:
        ranks.isend(token, 0, _ENTERED)
        if not _completes(ranks.irecv(token, 0, _RELEASED), deadline):
            raise RuntimeError(
                f"monitored_barrier: rank {ranks.rank} received no answer from rank 0 within {seconds:g} s; rank 0 or "
                "another rank has not entered the barrier"
            )
        return
    requests = {other: ranks.irecv(token, other, _ENTERED) for other in range(1, ranks.size)}
    missing = []
    for other, request in requests.items():
        if not _completes(request, deadline):
            missing.append(other)
            if not wait_all_ranks:
                break
    if missing:
        for request in requests.values():
            request.cancel()
        raise RuntimeError(f"monitored_barrier: ranks {missing} have not entered the barrier within {seconds:g} s")
    for other in requests:
        ranks.isend(token, other, _RELEASED)


def _completes(request: MessageRequest | DeviceMessageRequest, deadline: float) -> bool:
    try:
        request.wait(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        request.cancel()
        return False
    return True
