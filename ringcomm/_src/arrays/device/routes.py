"""The routes that calls on GPU arrays can take here, and why the other routes are unavailable.

`ringcomm info` and `ringcomm bench` show them. `ALL` is the only list of routes in Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays.device import devices


class Route(NamedTuple):
    """A route, and the reason why it is unavailable here."""

    name: str
    why_not: str  # "" if the route is available


ALL = {
    "nccl": "NVIDIA's library, where every rank owns a GPU",
    "ipc": "kernels that read all ranks' arrays, on one host",
    "levels": "slices between hosts, which nccl or ipc brings together inside them",
    "aware": "an MPI that takes addresses of GPUs",
    "staging": "segments through memory that the ranks of a host share",
}


def listed(comm: Any = None) -> list[Route]:
    """Returns all routes, best first; a call takes the first available route that supports it.

    Collective if `comm` has several ranks and there are GPUs: the ranks exchange which routes they support.
    """
    _, none_here = devices.found()
    several = comm is not None and comm.size > 1
    none = none_here
    if several:
        there = comm.allreduce(np.array([not none_here]), "min")[0]
        none = none_here or ("" if there else "a rank has no GPU")
    if none:
        return [Route(name, none) for name in ALL]
    known = dict.fromkeys(ALL, "one rank")
    if several:
        first_call = comm.empty(1, device="cuda")
        try:
            comm.allreduce(first_call)
        except ValueError as error:  # RINGCOMM_GPU_ROUTE asks for an unavailable route; raised on every rank
            return [Route(name, str(error)) for name in ALL]
        known = comm._channel.device_route_statuses()
    known |= {"staging": ""}
    return [Route(name, known[name]) for name in ALL]


def chosen(routes: list[Route]) -> str:
    """Returns the name of the first available route; "" if there is none."""
    return next((route.name for route in routes if not route.why_not), "")
