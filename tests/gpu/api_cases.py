"""The program that tests/gpu/test_api.py runs on ranks, and cases of refusals and of monitoring."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import runpy
from pathlib import Path
from typing import Any

import api_collectives  # noqa: F401 - its cases
import api_messages  # noqa: F401
import device_array as da
import numpy as np
from api_arrays import CASES, LIBRARY, ON_DEVICE, ByInterface, Described, Here, capturing, case, check, late, raises

import ringcomm
from ringcomm._src import cli
from ringcomm._src.arrays.device import devices, routes


@case
def what_works_on_the_hosts_memory_alone_says_so(here: Here) -> None:
    comm, x = here.comm, late(np.ones(here.size * 2, np.float32))
    op = ringcomm.Op.create(lambda a, b: np.add(a, b, out=b))
    fix = "Pass a copy in host memory"
    for call in (comm.allreduce, comm.reduce, comm.reducescatter, comm.scan, comm.iallreduce, comm.allreduce_init):
        raises(ringcomm.UnsupportedError, fix, lambda call=call: call(x, op=op))
    host = np.ones(here.size * 2, np.float32)
    raises(ringcomm.UnsupportedError, "is on GPU", lambda: comm.allreduce(host, op=op, out=x))
    check(comm.allreduce(host, op=op), host * here.size)
    ringcomm.init()
    raises(ringcomm.UnsupportedError, "give a NumPy array", lambda: ringcomm.PeriodicAverager([x], every=1))
    raises(ringcomm.UnsupportedError, "give a NumPy array", lambda: ringcomm.ParameterStore({"x": x}))
    weights = {"x": np.zeros(4)}
    with ringcomm.ParameterStore(weights, ringcomm.updates.SGD(1.0)) as store:
        store.push_pull({"x": late(np.ones(4))})
    check(weights["x"], np.full(4, -here.size))
    ringcomm.shutdown()


@case
def calls_that_ranks_disagree_on_leave_the_next_ones_right(here: Here) -> None:
    """Tests that ranks exchange their memory locations in the next call if a mismatch prevented it."""
    if here.size == 1:
        return
    for count in (10, 70_000, 100_000):
        x = late(np.ones(count + here.size, np.float32))
        other, same = x[: count + here.comm.rank], x[:count]
        raises(ringcomm.MismatchError, "ranks disagree", lambda: here.comm.allreduce(other, out=other))  # noqa: B023
        check(here.comm.allreduce(same, out=same), np.full(count, here.size, np.float32))


@case
def a_stream_that_is_captured_is_refused(here: Here) -> None:
    """Captures a stream: earlier calls continue meanwhile, and the capture outlives all of them."""
    x = late(np.ones(3))
    begun = here.comm.iallreduce(late(np.ones(1 << 20)))
    with capturing(here.library):
        for captured in (x, x[::2]):
            raises(ringcomm.UnsupportedError, "communicate outside", lambda: here.comm.allreduce(captured))  # noqa: B023
        while not begun.test():
            pass
    check(begun.wait(), np.full(1 << 20, here.size))


@case
def an_mpi_that_takes_no_addresses_of_gpus_is_given_none(here: Here) -> None:
    if here.size == 1:
        return
    aware = dataclasses.replace(here.comm.config, gpu_route="aware")
    with contextlib.closing(ringcomm.Communicator(config=aware)) as comm:
        why = "RINGCOMM_GPU_ROUTE=aware is not possible: a rank's MPI does not report"
        raises(ValueError, why, lambda: comm.allreduce(late(np.ones(3))))


@case
def arrays_that_must_not_be_written_are_not(here: Here) -> None:
    x = late(np.ones(3))

    class ReadOnly(Described):
        @property
        def __cuda_array_interface__(self) -> Any:
            described = x.__cuda_array_interface__
            return described | {"data": (described["data"][0], True)}

    immutable = type("Array", (ByInterface,), {"__module__": "jaxlib.xla_extension"})(x)
    for array in (ReadOnly(x), immutable):
        raises(ValueError, "read-only", lambda array=array: here.comm.allreduce(array, out=array))
        raises(ValueError, "read-only", lambda array=array: here.comm.irecv(array))
        check(here.comm.allreduce(array), np.full(3, here.size))


@case
def copies_are_events_of_the_timeline(here: Here) -> None:
    from ringcomm._src.observe.events import Listener

    x, out = late(np.ones(3 << 20, np.float32)), late(np.zeros(3 << 20, np.float32))
    with Listener() as listener:
        # it takes the staging route, whatever other routes exist
        here.comm.allreduce(x, out=out, algorithm="ring", name="traced")
        here.comm.allreduce(x, out=out, name="free")
    taken = listener.take()
    events = [event for event in taken if event.name == "traced"]
    for category in ("from device", "to device"):
        copies = sorted((event for event in events if event.category == category), key=lambda event: event.begin_ns)
        assert len(copies) > (here.size > 1) and sum(event.bytes for event in copies) == 12 << 20, (category, copies)
        assert all(before.end_ns <= after.begin_ns for before, after in itertools.pairwise(copies))
        assert len({event.lane for event in copies}) == 1
    assert any(event.category == "run" for event in events)
    ran = {event.detail for event in taken if event.category == "run" and event.name == "free"}
    copied = any(event.category == "from device" for event in taken if event.name == "free")
    assert ran and copied == ran.isdisjoint({"nccl", "ipc"}), ran
    check(out, np.full(3 << 20, here.size, np.float32))


@case
def small_arrays_of_ranks_that_share_a_gpu_go_by_way_of_the_host(here: Here) -> None:
    from ringcomm._src.observe.events import Listener

    sizes = {"small": 1000, "large": 1 << 20}  # float32: below and at 4 MiB
    with Listener() as listener:
        for name, count in sizes.items():
            check(here.comm.allreduce(late(np.ones(count, np.float32)), name=name), np.full(count, here.size))
    copied = {event.name for event in listener.take() if event.category == "from device"}
    if here.size > devices.count():
        assert copied == {"small"}, copied


def bench(here: Here, folder: str) -> None:
    """Checks that results are right, and that rows contain rates."""
    path = f"{folder}/bench{here.size}.json"
    for collective in ("allreduce", "allgather") if here.size == 2 else ("allreduce",):
        line = [
            "bench",
            collective,
            "--device",
            "cuda",
            "--sizes",
            "128K",
            "--repeat",
            "1",
            "--warmup",
            "0",
            "--json",
            path,
        ]
        assert cli.main(line) == 0
        if here.rank == 0:
            made = json.loads(Path(path).read_text())
            rows = {row["algorithm"]: row for row in made["rows"]}
            assert set(rows) == {"auto", "mpi"} and made["options"]["device"] == "cuda"
            assert all(row["wrong"] == 0 and row["algbw"] > 0 and row["count"] == 32 << 10 for row in rows.values())
            assert rows["auto"]["ran"]
    if here.size == 1:
        assert cli.main(["bench", "allreduce", "--device", "cuda:7"]) == 2
        assert cli.main(["bench", "barrier", "--device", "cuda"]) == 2


def info(here: Here) -> None:
    from ringcomm._src.cli import info as command

    facts = command.gather()
    known = facts["gpu_routes"]
    assert (
        known["gpus"] == devices.count()
        and set(known["routes"]) == set(routes.ROUTES)
        and known["routes"]["staging"] == ""
    )
    assert known["chosen"] == next(name for name, why in known["routes"].items() if not why)
    if here.rank == 0:
        on, why = facts["enabled"]["GPU buffers"].values()
        assert on and f"{devices.count()} on this host, route {known['chosen']}" in why and "not aware: " in why


def run(seeds: int, folder: str, example: str) -> None:
    """Runs all cases on a separate stream, under each seed; then commands and the example."""
    import mpi_case

    da.use(LIBRARY)
    comm = ringcomm.Communicator()
    here = Here(comm, ctypes.CDLL(LIBRARY))
    device = comm.local_rank % devices.count()
    with da.device(device):
        stream = da.new_stream()
    only = os.environ.get("API_CASES", "")
    for seed in range(seeds):
        if not ON_DEVICE:
            here.library.standin_seed(ctypes.c_uint64(seed + 1))
        for one in CASES:
            if only not in one.__name__:
                continue
            with da.device(device), da.stream(stream):
                try:
                    one(here)
                except BaseException:
                    mpi_case.say(f"rank {comm.rank}, seed {seed}: {one.__name__} failed")
                    raise
                if not ON_DEVICE:
                    here.library.standin_settle()
    if not ON_DEVICE:
        here.library.standin_check()
    comm.close()
    if not only:
        bench(here, folder)
        info(here)
        runpy.run_path(example, run_name="__main__")
