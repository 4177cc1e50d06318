"""By which ways the bytes of GPU arrays can travel here, and why not by the others: what `ringcomm info` and `ringcomm
bench` show, and the one place where ways are listed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays.device import devices


class Path(NamedTuple):
    """A way, and why it is none here."""

    name: str
    why_not: str  # "": it can be gone


ALL = {
    "nccl": "NVIDIA's library, where every rank owns a GPU",
    "ipc": "kernels that read all ranks' arrays, on one host",
    "levels": "slices between hosts, which nccl or ipc brings together inside them",
    "aware": "an MPI that takes addresses of GPUs",
    "staging": "segments through memory that the ranks of a host share",
}


def listed(comm: Any = None) -> list[Path]:
    """All of them, best first; a call takes the first that can be gone and takes such calls.

    Collective with a communicator of several ranks, if there are GPUs: its ranks tell each other what they can.
    """
    _, none_here = devices.found()
    several = comm is not None and comm.size > 1
    none = none_here
    if several:
        there = comm.allreduce(np.array([not none_here]), "min")[0]
        none = none_here or ("" if there else "a rank has no GPU")
    if none:
        return [Path(name, none) for name in ALL]
    known = dict.fromkeys(ALL, "one rank")
    if several:
        first_call = comm.empty(1, device="cuda")
        try:
            comm.allreduce(first_call)
        except ValueError as error:  # RINGCOMM_GPU_ROUTE asks for what cannot be, on every rank
            return [Path(name, str(error)) for name in ALL]
        known = comm._channel.device_route_statuses()
    known |= {"staging": ""}
    return [Path(name, known[name]) for name in ALL]


def chosen(paths: list[Path]) -> str:
    """The first that can be gone; "" if there is none."""
    return next((path.name for path in paths if not path.why_not), "")
