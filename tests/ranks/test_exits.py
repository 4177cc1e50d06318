"""All ways in which a rank ends: all processes end, and the output names rank and cause."""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import mpi_case
import numpy as np
import pytest
from launching import LAUNCHER, environment

import ringcomm
from ringcomm._src.core import _core
from ringcomm._src.training import plans

LIMIT = 15  # seconds from the failure to the end of every process
STARTING = 15  # seconds to start Python and MPI on a busy machine
BAD = 1  # the rank that fails


# ---- activities of the other ranks, and ends of the bad rank ---------------------------------------------------------
def idle():
    """Sleeps in the main thread; no operation is pending."""
    while True:
        time.sleep(0.2)


def agreeing():
    """Waits for an operation that the bad rank never submits."""
    ringcomm.allreduce(np.ones(10), name="never everywhere")


def transferring():
    """Runs large named and ordered operations, one after the other."""
    x = np.ones(8 << 20, np.float32)
    comm = ringcomm.communicator()
    while True:
        handle = ringcomm.allreduce_async(x, name="large")
        comm.allreduce(x)
        handle.wait()


def ordered():
    """Makes an ordered call that the bad rank never makes."""
    ringcomm.communicator().allreduce(np.ones(10))


def joined():
    """Has no data left, and waits for the bad rank to join too."""
    ringcomm.join()


def die_by(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1; kill -KILL {os.getpid()}"])
        time.sleep(10)
    elif how == "exception":
        raise ValueError("boom on purpose")
    elif how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    elif how == "exit":
        sys.exit(3)
    elif how == "system exit":
        raise SystemExit(3)
    elif how == "end":
        return


def failing(how, phase):
    ringcomm.init()
    comm = ringcomm.communicator()
    ringcomm.allreduce(np.ones(3), name="start")
    comm.barrier()
    if comm.rank != BAD:
        globals()[phase]()
        return
    if phase == "transferring":
        # The main thread is in the middle of a transfer when the rank ends.
        if how in ("kill", "stop", "interrupt"):
            threading.Timer(0.5, die_by, [how]).start()
            transferring()
        x = np.ones(8 << 20, np.float32)
        handles = [ringcomm.allreduce_async(x, name="large"), comm.iallreduce(x)]
        die_by(how)
        del handles
    else:
        time.sleep(0.3)
        die_by(how)


CAUSES = {
    "kill": r"signal:? 9|Killed",
    "stop": r"signal:? 9|Killed",
    "exception": r"ringcomm: rank 1 of 3 \(.+\): ValueError: boom on purpose; ending the job",
    "interrupt": r"ringcomm: rank 1 of 3 \(.+\): KeyboardInterrupt",
    "exit": r"ringcomm: rank 1 of 3 \(.+\): sys\.exit\(3\); ending the job",
    "system exit": r"ringcomm: rank 1 of 3 \(.+\): sys\.exit\(3\); ending the job",
    "end": r"RankLeftError.*rank 1 |rank 1 .*RankLeftError",
}


PHASES = (
    ("idle", "on"),
    ("agreeing", "on"),
    ("joined", "on"),
    ("ordered", "off"),
    ("transferring", "on"),
    ("transferring", "off"),
)
# `make test` runs a third of the cases: each cause with two phases, each phase with two causes or
# more.
CASES = [
    pytest.param(how, *PHASES[phase], marks=pytest.mark.slow if (cause + phase) % 3 else [])
    for cause, how in enumerate(CAUSES)
    for phase in range(len(PHASES))
    # If a script ended, peers that need nothing from its rank continue.
    if PHASES[phase][0] != "idle" or how != "end"
]


@pytest.mark.parametrize(("how", "phase", "memory"), CASES)
def test_the_whole_job_ends(how, phase, memory):
    result = mpi_case.start(
        3, failing, how, phase, limit=STARTING + LIMIT, variables={"RINGCOMM_SHARED_MEMORY": memory}
    )
    assert result.status > 0, result.text  # a negative status: the launcher itself crashed
    assert not result.left_behind, result.left_behind
    assert re.search(CAUSES[how], result.text), result.text
    assert re.search(r"\brank 1\b", result.text), result.text
    if how == "exception":
        assert "Traceback" in result.text and "die_by" in result.text
    if how in ("exit", "system exit"):
        assert result.status == 3


# ---- ends that are not failures --------------------------------------------------------------------------------------
def quiet(how):
    """Runs operations. Then every rank ends in the way `how`, rank 1 first; no rank needs it."""
    ringcomm.init()
    comm = ringcomm.Communicator()
    assert ringcomm.allreduce(np.ones(2), op=ringcomm.Sum).tolist() == [ringcomm.size()] * 2
    comm.barrier()
    ringcomm.barrier()
    if ringcomm.rank() != 1:
        time.sleep(0.5)
    if how == "exit 0":
        sys.exit(0)
    if how == "caught":
        try:
            sys.exit(5)
        except SystemExit as error:
            assert error.code == 5
        try:
            raise SystemExit("six")
        except SystemExit:
            pass
    if how == "thread":
        worker = threading.Thread(target=lambda: 1 / 0)
        worker.start()
        worker.join()
        worker = threading.Thread(target=sys.exit, args=[4])
        worker.start()
        worker.join()
    if how == "shutdown":
        ringcomm.shutdown()
        comm.close()


@pytest.mark.parametrize("how", ["end", "exit 0", "caught", "thread", "shutdown"])
@pytest.mark.parametrize("size", [1, 3])
def test_quiet_ends(size, how):
    # One case initialises MPI in init(), so MPI is finalised while Python objects still use it.
    result = mpi_case.run(
        size, quiet, how, variables={"MPI4PY_RC_INITIALIZE": "0"} if how == "caught" else {}, alone=True
    )
    assert "ringcomm: rank" not in result.text


def ended_early(how, sign):
    """Rank 1's script ends; rank 0 continues without it.

    Each rank has messages left for the other, and reports them.
    """
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    atexit.register(mpi_case.say, rank, "finalises MPI next")  # the last of ringcomm's exit handlers to run
    ringcomm.init()
    comm = ringcomm.communicator()
    if rank == 1:
        requests = comm.isend(np.zeros(100_000), 0, 5), comm.irecv(np.empty(1), 0, 6)
        assert not any(request.test() for request in requests)
    else:
        comm.send(np.zeros(5), 1, 42)
    ringcomm.barrier()
    if how == "shutdown":
        while rank == 1 and not all(request.test() for request in requests):  # until rank 0 has left
            time.sleep(0.01)
        ringcomm.shutdown()
    if rank == 1:
        return Path(sign).touch()
    while not Path(sign).exists():
        time.sleep(0.01)
    time.sleep(0.5)
    mpi_case.say(rank, "ends")


@pytest.mark.parametrize(("how", "memory"), [("end", "off"), ("shutdown", "on")])
def test_a_rank_that_ended_first_waits_outside_mpi_finalize(how, memory, tmp_path):
    """Another rank may abort: Open MPI's launcher may then crash if a rank is finalising."""
    variables = {"RINGCOMM_SHARED_MEMORY": memory}
    result = mpi_case.run(2, ended_early, how, str(tmp_path / "rank 1 ends"), alone=True, variables=variables)
    assert result.lines("0 ends") and result.lines("1 fin"), result.text
    assert result.text.index("0 ends") < result.text.index("1 finalises"), result.text
    left = [result.lines(f"ringcomm: rank {rank} left its communicator with pending messages") for rank in range(2)]
    assert [len(lines) for lines in left] == [1, 1], result.text
    assert "the message from rank 1 with tag 5 (800000 bytes) was never received" in left[0][0]
    assert "the message from rank 0 with tag 42 (40 bytes) was never received" in left[1][0], left
    for what in (r"send\(dest=0, tag=5\) of 800000 bytes", r"recv\(source=0, tag=6\) of at most 8 bytes"):
        outcome = " has not completed" if how == "end" else ": rank 0 closed the communicator"
        assert re.search(what + outcome, left[1][0]), left


def alone(how):
    ringcomm.init()
    ringcomm.allreduce(np.ones(2))
    die_by(how)


@pytest.mark.parametrize(
    "how, status, words", [("exception", 1, "ValueError: boom on purpose"), ("exit", 3, ""), ("system exit", 3, "")]
)
@pytest.mark.parametrize("size", [0, 1])
def test_one_rank_ends_as_any_python_program(size, how, status, words):
    result = mpi_case.start(size, alone, how)
    assert result.status == status and words in result.text and "ending the job" not in result.text


def exception_in_a_thread():
    ringcomm.init()
    if ringcomm.rank() == BAD:

        def broken():
            ringcomm.allreduce(np.ones(2), name="x")
            ringcomm.allreduce(object(), name="y")

        threading.Thread(target=broken, name="reader").start()
    else:
        ringcomm.allreduce(np.ones(2), name="x")
        ringcomm.allreduce(np.ones(2), name="y")
    idle()


def test_a_thread_that_dies_in_a_call_ends_the_job():
    result = mpi_case.start(2, exception_in_a_thread, limit=STARTING + LIMIT)
    assert result.status != 0 and not result.left_behind
    assert re.search(r"ringcomm: rank 1 of 2 .*TypeError.*\(in reader\); ending the job", result.text), result.text


def survivors():
    """Pending and later calls raise PeerLostError; a script may catch it to save its work."""
    ringcomm.init()
    comm = ringcomm.communicator()
    comm.barrier()
    if comm.rank == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    for call in (
        lambda: comm.allreduce(np.ones(3)),
        lambda: ringcomm.allreduce(np.ones(3), name="n"),
        lambda: comm.allreduce(np.ones(3)),
    ):
        try:
            call()
        except ringcomm.PeerLostError as error:
            mpi_case.say("lost", type(error).__name__, error)
        else:
            raise AssertionError
    assert time.monotonic() - begun < 10
    mpi_case.say("saved")
    os._exit(7)


def test_survivors_learn_who_died():
    """Open MPI's launcher gives survivors time to detect the death; MPICH's kills them."""
    result = mpi_case.start(2, survivors, limit=STARTING + LIMIT)
    assert result.status != 0 and not result.left_behind
    lost = result.lines("lost PeerLostError")
    assert lost or "BAD TERMINATION" in result.text, result.text
    assert all("rank 1" in line for line in lost)


# ---- fork ------------------------------------------------------------------------------------------------------------
def forking():
    ringcomm.init()
    comm = ringcomm.Communicator()
    handle = ringcomm.allreduce_async(np.ones(1000), op=ringcomm.Sum, name="before")
    child = os.fork()
    if child == 0:
        caught = 0
        for call in (
            lambda: comm.allreduce(np.ones(1)),
            lambda: ringcomm.allreduce(np.ones(1)),
            ringcomm.rank,
            handle.wait,
            lambda: comm.iallreduce(np.ones(1)),
            lambda: comm.isend(np.ones(1), 0),
            ringcomm.init,
            ringcomm.Communicator,
        ):
            try:
                call()
            except ringcomm.RingcommError as error:
                caught += f"initialised in process {os.getppid()}" in str(error)
        from ringcomm._src.process import exits

        array = comm.empty(1 << 16, "float64")  # in ordinary memory
        array[:] = 1
        with comm.shared_arrays():
            assert (array + 1).sum() == 2 << 16
        comm.close()  # does nothing
        del handle, comm
        exits._at_exit()
        os._exit(caught)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 8, status
    assert handle.wait()[0] == ringcomm.size()
    assert comm.allreduce(np.ones(1))[0] == ringcomm.size()
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
    ringcomm.barrier()
    comm.close()


@pytest.mark.parametrize("size", [1, 2])
def test_forked_children_are_told_and_harm_nothing(size):
    mpi_case.run(size, forking)


# ---- resources after close -------------------------------------------------------------------------------------------
def many_communicators(turns):
    """The numbers of descriptors, threads and mappings do not grow."""
    import psutil
    from mpi4py import MPI

    me, counts = psutil.Process(), []
    for _ in range(turns):
        comm = ringcomm.Communicator(MPI.COMM_WORLD)
        half = comm.split(comm.rank % 2, -comm.rank)
        assert half.size == (comm.size + 1 - comm.rank % 2) // 2
        assert half.allreduce(np.array([comm.rank])).tolist() == [sum(range(comm.rank % 2, comm.size, 2))]
        none = comm.split(None if comm.rank else 0)
        assert (none is None) == (comm.rank > 0)
        comm.iallreduce(np.ones(3)).wait()
        for one in (none, half, comm):
            if one is not None:
                one.close()
                one.close()
        counts.append((me.num_fds(), me.num_threads(), len(me.memory_maps(grouped=False))))
    assert counts[-1][:2] == counts[2][:2], counts
    assert counts[-1][2] <= counts[2][2] + 8, counts
    try:
        comm.barrier()
    except ringcomm.ShutDownError:
        pass
    else:
        raise AssertionError


@pytest.mark.parametrize("size", [1, 3])
def test_communicators_leave_nothing(size):
    mpi_case.run(size, many_communicators, 10)


# ---- a death that the launcher does not notice -----------------------------------------------------------------------
def unseen(folder):
    """The process that the launcher knows outlives the rank, so the launcher does not end the job."""
    if rank := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
        Path(folder, str(rank)).touch()
        while len(os.listdir(folder)) < 3:  # otherwise the launcher ends the other ranks
            time.sleep(0.01)
        os._exit(0 if status == -signal.SIGKILL else status % 256)
    ringcomm.init()
    data = np.ones(3, np.float32)
    bucket = plans.BucketShape(_core.DTYPES.index("float32"), [data.size])
    plan = plans.StepPlan(ringcomm.global_process_set, "all", "a test's", [bucket], 1, int(ringcomm.Sum), (1.0, 1.0))
    plan.place(0, 0, data.ctypes.data)

    def step():
        plan.begin()
        plan.ready(0)
        plan.send_rest(plans.Presence(1), plans.KEPT)
        plan.wait()

    step()
    if ringcomm.rank() == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    comm, one = ringcomm.communicator(), np.empty(1)
    handle, request = comm.iallreduce(one), comm.irecv(one, ringcomm.ANY_SOURCE)
    messages = [
        lambda: comm.recv(one, BAD),
        lambda: comm.send(np.ones(100_000), BAD),
        lambda: comm.probe(ringcomm.ANY_SOURCE, 3),
        request.wait,
        handle.wait,
        comm.barrier,
    ]
    for work in (step, agreeing, *messages):  # the error is fatal: later operations fail too
        try:
            work()
        except ringcomm.PeerLostError as error:
            mpi_case.say("lost", error.ranks)
    ringcomm.shutdown()
    for ranks in (None, [0, 1, 2]):
        try:
            ringcomm.init(ranks)
        except ringcomm.PeerLostError as error:
            mpi_case.say("init", error.ranks)


@pytest.mark.parametrize("memory", ["on", "off"])
def test_a_death_that_the_launcher_does_not_see(memory, tmp_path):
    result = mpi_case.start(
        3, unseen, str(tmp_path), limit=STARTING + LIMIT, variables={"RINGCOMM_SHARED_MEMORY": memory}
    )
    assert not result.left_behind, result.left_behind
    assert len(result.lines("lost (1,)")) == 16, result.text
    assert len(result.lines("init (1,)")) == 4, result.text


# ---- ringcomm reports which rank died --------------------------------------------------------------------------------
def dying():
    """Kills rank 1 as soon as init() has returned there."""
    ringcomm.init()
    if ringcomm.rank() == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    idle()


@pytest.mark.parametrize("kind", ["file", "pipe", "socket"])
def test_a_killed_rank_is_named_whatever_the_output_is(kind, tmp_path):
    """Launcher and guardian write to one open file; separate ones would overwrite output."""
    here, there = socket.socketpair()
    command = [LAUNCHER, "-n", "3", sys.executable, mpi_case.__file__, __file__, dying.__name__, "()"]
    path = tmp_path / "output"
    with here, there, path.open("wb") as file:
        to = {"file": file, "pipe": subprocess.PIPE, "socket": there}[kind]
        with subprocess.Popen(command, cwd=Path(__file__).parent, env=environment(), stdout=to, stderr=to) as job:
            there.close()
            text = job.stderr.read() if job.stderr else b"".join(iter(lambda: here.recv(1 << 16), b""))
            assert job.wait(STARTING + LIMIT) != 0
    text += path.read_bytes()
    assert re.findall(rb"ringcomm: rank (\d) of 3 .* has died", text) == [b"1"], text
