"""Errors of random programs: calls on which ranks disagree, and refused arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from model_calls import Step, call_of, cases, method

import ringcomm
from ringcomm._src.communicator.persistent import Persistent

REDUCTIONS = ("allreduce", "reduce", "reducescatter", "reduce_scatter", "scan", "exscan")
ROOTED = ("reduce", "broadcast", "gather", "gatherv", "scatter", "scatterv")
COUNTED = ("allgather", "allgatherv", "gatherv", "scatterv", "reduce_scatter", "alltoallv")


def require(call: Callable[[], Any], *errors: type[Exception]) -> None:
    with pytest.raises(errors):
        call()


def require_closed(comm: ringcomm.Communicator) -> None:
    require(comm.barrier, ringcomm.ShutDownError)
    require(lambda: comm.iallreduce(np.ones(1)), ringcomm.ShutDownError)


def leave(comm: ringcomm.Communicator, odd: int) -> None:
    """Closes the communicator on one rank while other ranks call it: all get an error."""
    if comm.rank == odd:
        require(comm.close, ringcomm.MismatchError)
        return
    out = np.zeros(9)
    receive = comm.irecv(out, odd, 7)
    require(lambda: comm.allreduce(X), ringcomm.MismatchError)
    for call in (
        receive.wait,
        lambda: comm.recv(out, odd),
        lambda: comm.send(LONG, odd),
        comm.barrier,
        lambda: comm.iallgather(X).wait(),
        comm.close,
    ):
        require(call, ringcomm.RankLeftError)


# ---- one rank disagrees ----------------------------------------------------------------------------------------------
def disagree(comm: ringcomm.Communicator, step: Step) -> list[Callable[[], None]]:
    """Makes calls on which one rank disagrees.

    Every rank must get a MismatchError with the same text, and the communicator stays usable.
    Returns functions that wait for the remaining calls.
    """
    if comm.size == 1:
        return []
    later = step.what % 2 == 1
    call = call_of(step)
    faults = ["call", "name"]
    faults += ["dtype", "tail"] * (call != "barrier") + ["op"] * (call in REDUCTIONS) + ["root"] * (call in ROOTED)
    faults += ["counts"] * (call in COUNTED)
    fault = faults[step.variant % len(faults)]
    tail = () if fault == "counts" and 0 in step.tail else step.tail
    step = step._replace(what=0, variant=6 if fault == "counts" else 1, tail=tail)
    if fault == "counts":
        step = step._replace(rows=4)
    odd = step.seed % comm.size
    case = cases(step, comm.size)[comm.rank]
    x, named = case.x, dict(case.named)
    if fault == "name":
        named["name"] = "usual"
    if comm.rank == odd:
        call, x = misled(fault, call, x, named, odd, comm.size)
    given = () if x is None else (x,)
    if step.form == "i" and later:
        handle = method(comm, call, step)(*given, **named)
        return [lambda: require(handle.wait, ringcomm.MismatchError)]
    with pytest.raises(ringcomm.MismatchError) as caught:
        made = method(comm, call, step)(*given, **named)
        if step.form:
            (made.start() if isinstance(made, Persistent) else made).wait()
    digest = np.frombuffer(hashlib.blake2b(str(caught.value).encode(), digest_size=8).digest(), np.int64)
    digests = comm.allgather(digest)
    assert len(set(digests.tolist())) == 1, caught.value
    return []


def misled(fault: str, call: str, x: Any, named: dict[str, Any], odd: int, size: int) -> tuple[str, Any]:
    """Returns the odd rank's call and array, and changes its other arguments."""
    if fault == "call":
        named.clear()
        return ("barrier", None) if call != "barrier" else ("allreduce", np.ones(3))
    if fault == "name":
        named["name"] = "other"
    elif fault == "dtype":
        return call, np.zeros(x.shape, np.int16)
    elif fault == "tail":
        return call, x[..., None]
    elif fault == "op":
        named["op"] = ringcomm.Max
        named.pop("prescale_factor", None), named.pop("postscale_factor", None)
    elif fault == "root":
        named["root"] = (named["root"] + 1) % size
    else:
        key = next(key for key in ("rows", "counts", "recvcounts") if key in named)
        counts = list(named[key])
        if call == "reduce_scatter" or (call == "scatterv" and odd == named["root"]):
            full = int(np.argmax(counts))
            counts[full] -= 1
            counts[(full + 1) % size] += 1
        else:
            counts[(odd + 1) % size] += 1
        named[key] = counts
    return call, x


# ---- a rank's own error ----------------------------------------------------------------------------------------------
X = np.ones(6, np.float32)
READ_ONLY = np.ones(6, np.float32)
READ_ONLY.setflags(write=False)
LONG = np.ones(18, np.float32)
SWAPPED = X.astype(X.dtype.newbyteorder())
REFUSED: list[Callable[[ringcomm.Communicator], Any]] = [
    lambda comm: comm.allreduce(SWAPPED),
    lambda comm: comm.iallreduce(SWAPPED),
    lambda comm: comm.broadcast(X, out=SWAPPED),
    lambda comm: comm.allgather_init(SWAPPED),
    lambda comm: comm.send(SWAPPED, 0),
    lambda comm: comm.irecv(SWAPPED, 0),
    lambda comm: comm.allreduce(np.array([None, 1])),
    lambda comm: comm.allreduce(X, out=READ_ONLY),
    lambda comm: comm.ibroadcast(READ_ONLY, out=READ_ONLY),
    lambda comm: comm.recv(READ_ONLY),
    lambda comm: comm.recv(np.ones((4, 4))[:, 1]),
    lambda comm: comm.allreduce(LONG[:6], out=LONG[1:7]),
    lambda comm: comm.iallgather(LONG[1:3], out=LONG[: 2 * comm.size]),
    lambda comm: comm.allreduce(X, out=np.ones(5, np.float32)),
    lambda comm: comm.reducescatter(X, out=np.ones(100, np.float32)),
    lambda comm: comm.scan(X, out=np.ones(6)),
    lambda comm: comm.scan(X, ringcomm.Average),
    lambda comm: comm.allreduce(X, ringcomm.BAND),
    lambda comm: comm.ireduce(X, 0, "sums"),
    lambda comm: comm.reduce(X, comm.size),
    lambda comm: comm.ibroadcast(X, -1),
    lambda comm: comm.reduce_init(X, comm.size),
    lambda comm: comm.gather(X, comm.size),
    lambda comm: comm.scatterv(X, [6] * (comm.size + 1)),
    lambda comm: comm.alltoall(X, [7] + [0] * (comm.size - 1)),
    lambda comm: comm.reduce_scatter(X, [7] + [-1] * (comm.size - 1)),
    lambda comm: comm.allgatherv(X, [5] * comm.size),
    lambda comm: comm.neighbours([[comm.size]] * comm.size),
    lambda comm: comm.send(X, comm.size),
    lambda comm: comm.isend(X, 0, -7),
    lambda comm: comm.split(-3),
]
AGREED: list[Callable[[ringcomm.Communicator], Any]] = [  # ranks compare the names of algorithms, so every rank refuses
    lambda comm: comm.allreduce(X, algorithm="none such"),
    lambda comm: comm.iscan(X, algorithm="none such"),
]


def refuse(comm: ringcomm.Communicator, step: Step) -> None:
    """Makes calls that raise TypeError or ValueError on one or all ranks, without data."""
    calls = REFUSED + AGREED * (step.variant % 2)
    if step.variant % 2 or comm.rank == step.root % comm.size:
        require(lambda: calls[(step.call + step.what) % len(calls)](comm), TypeError, ValueError)
