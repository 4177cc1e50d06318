"""The routes that calls on GPU arrays can take here, and why the other routes are unavailable.

`ringcomm info` and `ringcomm bench` show them. `ROUTES` is the only list of routes in Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays.device import devices


class Route(NamedTuple):
    """A route, and the reason why it is unavailable here."""

    name: str
    unavailable_reason: str  # "" if the route is available


ROUTES = {
    "nccl": "NCCL, if every rank has its own GPU",
    "ipc": "kernels that read the arrays of all ranks, on one host",
    "levels": "slices sent between hosts, nccl or ipc within each host",
    "aware": "a CUDA-aware MPI library",
    "staging": "segments copied through shared host memory",
}


def all_routes(comm: Any = None) -> list[Route]:
    """Returns all routes, best first; a call takes the first available route that supports it.

    Collective if `comm` has several ranks and there are GPUs: the ranks exchange which routes they
    support.
    """
    _, missing_here = devices.count_or_reason()
    has_peers = comm is not None and comm.size > 1
    reason = missing_here
    if has_peers:
        all_have_gpus = comm.allreduce(np.array([not missing_here]), "min")[0]
        reason = missing_here or ("" if all_have_gpus else "a rank has no GPU")
    if reason:
        return [Route(name, reason) for name in ROUTES]
    reasons = dict.fromkeys(ROUTES, "there is only one rank")
    if has_peers:
        array = comm.empty(1, device="cuda")
        try:
            comm.allreduce(array)
        except ValueError as error:  # RINGCOMM_GPU_ROUTE asks for an unavailable route; raised on every rank
            return [Route(name, str(error)) for name in ROUTES]
        reasons = comm._channel.device_route_statuses()
    reasons |= {"staging": ""}
    return [Route(name, reasons[name]) for name in ROUTES]


def first_available(routes: list[Route]) -> str:
    """Returns the name of the first available route; "" if there is none."""
    return next((route.name for route in routes if not route.unavailable_reason), "")
