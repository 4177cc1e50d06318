"""Parts of elastic jobs: slots, memory of commits, packing, limits, snapshots, options."""

from __future__ import annotations

import itertools
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm._src.cli.ringrun import hosts_of_slurm
from ringcomm._src.elastic import driver as elastic
from ringcomm._src.elastic.agent import commit_store, segments, snapshots
from ringcomm._src.elastic.agent.commit_store import CommitStore, StoredCommit
from ringcomm._src.elastic.agent.heartbeats import Heartbeats
from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.agent.trainers import Trainer, Trainers
from ringcomm._src.elastic.agent.zygotes import python_words
from ringcomm._src.elastic.driver import agents
from ringcomm._src.elastic.driver.driver import Driver
from ringcomm._src.elastic.driver.limits import Limits
from ringcomm._src.elastic.driver.membership import Membership, Slot
from ringcomm._src.elastic.driver.snapshots import Snapshots
from ringcomm._src.elastic.member import packing
from ringcomm._src.launch.hosts import Host
from ringcomm._src.launch.options import make_parser
from ringcomm._src.torch.elastic import packing as _torch_packing  # noqa: F401

# ---- choice of slots -------------------------------------------------------------------------------------------------
names = st.sampled_from("abcd")
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("found"), st.dictionaries(names, st.integers(1, 3), max_size=4)),
        st.tuples(st.sampled_from(["reached", "lost"]), names),
        st.tuples(st.just("failed"), st.integers(0, 11)),
    ),
    max_size=30,
)


@given(happenings, st.integers(1, 4), st.integers(0, 4))
def test_slots_chosen(what: list, minimum: int, more: int) -> None:
    """Checks the choice of slots.

    It has at least the minimum number of slots or none, and never more than the maximum. All are on
    known hosts. It includes failed slots only if no other slots are left. Hosts are in the order in
    which they appeared. A slot that stays precedes those that follow it.
    """
    membership = Membership(minimum, minimum + more)
    there: dict[str, int] = {}
    reached: set[str] = set()
    failed: set[Slot] = set()
    chosen: list[Slot] = []
    for now, (word, value) in enumerate(what):
        if word == "found":
            membership.found([Host(name, count) for name, count in value.items()])
            there = value
        elif word == "failed":
            if value < len(chosen):
                membership.failed(chosen[value], now)
                failed.add(chosen[value])
        else:
            (membership.reached if word == "reached" else membership.lost)(value)
            (reached.add if word == "reached" else reached.discard)(value)
        before, chosen = chosen, membership.choose(now)
        room = [Slot(name, i) for name, count in there.items() if name in reached for i in range(count)]
        assert set(chosen) <= set(room) and len(set(chosen)) == len(chosen)
        assert len(chosen) <= minimum + more and (len(chosen) >= minimum or not chosen)
        assert bool(chosen) == (len(room) >= minimum)
        if failed & set(chosen):
            assert len(chosen) == minimum and set(room) - failed <= set(chosen)
        hosts = list(dict.fromkeys(slot.host for slot in chosen))
        kept = [host for host in dict.fromkeys(slot.host for slot in before) if host in hosts]
        assert [host for host in hosts if host in kept] == kept
        assert chosen == sorted(chosen, key=lambda slot: (hosts.index(slot.host), slot.number))


def test_a_failed_slot_cools_down() -> None:
    membership = Membership(1, None, (10.0, 25.0), jitter=lambda: 0.0)
    membership.found([Host("a", 2)])
    membership.reached("a")
    first, second = membership.choose(0.0)
    for now, rest in ((0.0, 10.0), (100.0, 20.0), (200.0, 25.0), (300.0, 25.0)):
        membership.failed(second, now)
        assert membership.choose(now + rest - 0.1) == [first]
        assert membership.choose(now + rest) == [first, second]


def test_the_oldest_failure_is_forgiven_first() -> None:
    membership = Membership(2)
    membership.found([Host("a", 3)])
    membership.reached("a")
    slots = membership.choose(0.0)
    membership.failed(slots[1], 1.0)
    membership.failed(slots[0], 2.0)
    assert membership.choose(3.0) == [slots[1], slots[2]]


def test_a_host_with_the_newest_commit_takes_part_though_it_failed() -> None:
    """The other two hosts failed before the commit was made, and hold an older one."""
    membership = Membership(1)
    membership.found([Host(name, 1) for name in "abc"])
    for name in "abc":
        membership.reached(name)
        membership.record_commit(name, (1, 6))
        membership.failed(Slot(name, 0), float(ord(name)))
    assert membership.choose(200.0) == [Slot("a", 0)]
    membership.record_commit("c", (3, 13))
    assert membership.choose(200.0) == [Slot("a", 0), Slot("c", 0)]
    membership.maximum = 1
    assert membership.choose(200.0) == [Slot("c", 0)]
    membership.lost("c")
    assert membership.choose(200.0) == [Slot("a", 0)]


def test_hosts_that_are_all_replaced_hand_the_commit_on() -> None:
    """One slot of the old hosts stays until a new host holds the commit too."""
    membership = Membership(2, 3)
    membership.found([Host("a", 2), Host("b", 2)])
    for host in "abcd":
        membership.reached(host)
    membership.record_commit("a", (1, 7))
    membership.record_commit("b", (1, 7))
    membership.found([Host("c", 2), Host("d", 2)])
    assert membership.choose(0.0) == [Slot("a", 0), Slot("c", 0), Slot("c", 1)]
    membership.found([Host("c", 1)])
    assert membership.choose(0.0) == []
    membership.found([Host("c", 2), Host("d", 2)])
    for host in "acd":
        membership.record_commit(host, (2, 9))
    assert membership.choose(0.0) == [Slot("c", 0), Slot("c", 1), Slot("d", 0)]


# ---- memory of commits -----------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.binary(max_size=50), st.lists(st.integers(0, 9000), max_size=6)), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_commits_alternate(commits: list[tuple[bytes, list[int]]]) -> None:
    """The memory holds the last two commits of any sizes, for all views of the memory."""
    fds = commit_store.allocate()
    try:
        writer, reader = CommitStore(fds), CommitStore(fds)
        random = np.random.default_rng(0)
        written = []
        for number, (stream, sizes) in enumerate(commits):
            parts = [random.integers(0, 256, size, dtype=np.uint8).data for size in sizes]
            writer.buffer(number).write(number, 7, stream, parts)
            written.append((stream, parts))
            assert reader.commits() == [StoredCommit(7, stored) for stored in range(max(0, number - 1), number + 1)]
            for commit in reader.commits():
                stream_read, parts_read = reader.buffer(commit.number).read()
                assert (stream_read, [bytes(part) for part in parts_read]) == (
                    written[commit.number][0],
                    [bytes(part) for part in written[commit.number][1]],
                )
        writer.keep_only(len(commits) - 1, 9)
        assert reader.commits() == [StoredCommit(9, len(commits) - 1)]
    finally:
        for fd in fds:
            os.close(fd)


def test_a_writer_that_dies_leaves_the_commit_before() -> None:
    fds = commit_store.allocate()
    CommitStore(fds).buffer(4).write(4, 1, b"four", [memoryview(b"4" * 1000)])
    child = os.fork()
    if not child:
        big = np.zeros(300 << 20, np.uint8)
        CommitStore(fds).buffer(5).write(5, 1, b"five", [big.data])
        os._exit(0)
    time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    commits = CommitStore(fds).commits()
    assert commits[0] == StoredCommit(1, 4) and CommitStore(fds).buffer(4).read()[0] == b"four"
    assert commits[1:] in ([], [StoredCommit(1, 5)])
    for fd in fds:
        os.close(fd)


def test_no_memory_for_a_commit() -> None:
    """Raises an error; the buffer then holds nothing, and the other buffer keeps its commit."""
    fds = commit_store.allocate()
    memory = CommitStore(fds)
    memory.buffer(0).write(0, 1, b"zero", [])
    child = os.fork()
    if not child:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            CommitStore(fds).buffer(1).write(1, 1, b"one", [memoryview(bytes(2 << 20))])
        except OSError:
            os._exit(5)
        os._exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert memory.commits() == [StoredCommit(1, 0)]
    for fd in fds:
        os.close(fd)


# ---- packing ---------------------------------------------------------------------------------------------------------
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
DTYPES += [torch.complex64]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        type(a) is type(b)
        and (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        and torch.equal(a.detach(), b.detach())
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (40, 50), (2, 3, 4)])
def test_tensors_are_packed(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape).mul(100).to(dtype)
    strided = x.expand(2, *shape).transpose(0, -1)
    stream, parts = packing.pack({"x": x, "strided": strided, "rest": [1, "a", None]})
    assert sum(part.nbytes for part in parts) + len(stream) < 3 * x.nbytes + 2000
    back = packing.unpack(stream, [bytearray(part) for part in parts])
    assert same(back["x"], x) and same(back["strided"], strided.contiguous()) and back["rest"] == [1, "a", None]
    back["x"].zero_()  # the loaded tensor has separate memory


def test_parameters_arrays_and_functions_are_packed() -> None:
    parameter = torch.nn.Parameter(torch.rand(300, 3))
    array = np.arange(5000.0).reshape(50, 100)
    stream, parts = packing.pack((parameter, array, array.T, lambda: 5))
    assert len(parts) == 3 and len(stream) < 5000
    back = packing.unpack(stream, [bytearray(part) for part in parts])
    assert same(back[0], parameter) and (back[1] == array).all() and (back[2] == array.T).all() and back[3]() == 5
    back[1][:] = 0
    assert array[1, 1] == 101


# ---- limits ----------------------------------------------------------------------------------------------------------
def test_three_faults_without_a_commit_end_the_job() -> None:
    limits = Limits(start=1, timeout=1)
    limits.committed(4)
    assert not limits.after_generation(by_fault=True, without_elastic=False)
    assert not limits.after_generation(by_fault=True, without_elastic=False)
    assert not limits.after_generation(by_fault=True, without_elastic=False)
    assert limits.not_before > time.monotonic()  # the next start without a commit must wait
    limits.committed(5)
    assert not limits.after_generation(by_fault=True, without_elastic=False)
    assert [bool(limits.after_generation(by_fault=True, without_elastic=True)) for _ in range(3)] == [
        False,
        False,
        True,
    ]


def test_whoever_fails_for_ever_is_told_how_that_ends() -> None:
    limits, limited = Limits(start=1, timeout=1), Limits(start=1, timeout=1, resets=99)
    warned = []
    for commit in range(10):
        for counters in (limits, limited):
            counters.committed(commit)
            assert not counters.after_generation(by_fault=True, without_elastic=False)
        warned.append(bool(limits.warning()))
        assert not limited.warning()
    assert warned == ([False] * 4 + [True]) * 2
    assert not limits.after_generation(by_fault=False, without_elastic=False) and not limits.warning()


def test_resets_are_limited() -> None:
    limits = Limits(start=1, timeout=1, resets=2)
    ends = []
    for commit in range(3):
        limits.committed(commit)
        ends.append(limits.after_generation(by_fault=False, without_elastic=False))
    assert ends[:2] == ["", ""] and "restarts is 2" in ends[2]


# ---- snapshots -------------------------------------------------------------------------------------------------------
def test_snapshots(tmp_path: Path) -> None:
    fds, others = commit_store.allocate(), commit_store.allocate()
    memory, other = CommitStore(fds), CommitStore(others)
    folder = str(tmp_path / "new" / "folder")
    assert snapshots.save(folder, memory) == -1 and not os.path.exists(folder)
    snapshots.load(folder, other)
    assert other.commits() == []
    for number in (6, 7):
        memory.buffer(number).write(number, 3, b"stream %d" % number, [memoryview(bytes([number]) * 10000)])
    memory.words[commit_store.SEALED] = 6
    assert snapshots.save(folder, memory) == 6  # not all ranks have saved 7 yet
    memory.words[commit_store.SEALED] = 7
    assert snapshots.save(folder, memory) == 7
    assert os.listdir(folder) == [snapshots.NAME]
    snapshots.load(folder, other)
    assert other.commits() == [StoredCommit(0, 7)] and other.words[commit_store.SEALED] == 7
    stream, (part,) = other.buffer(7).read()
    assert stream == b"stream 7" and bytes(part) == bytes([7]) * 10000
    for fd in (*fds, *others):
        os.close(fd)


def test_why_there_is_no_snapshot_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Reports the reason once, and again for the final snapshot; then nothing is written."""

    class Agents:
        reached = ("a",)

        def send(self, host: str, message: dict[str, Any]) -> None:
            assert (host, message) == ("a", {"snapshot": "/folder"})
            hosts.append(host)

    hosts: list[str] = []
    made = Snapshots(Agents(), "/folder", 1.0)  # type: ignore[arg-type]
    for turn in range(1, 4):
        made.tick(time.monotonic() + 10 * turn)
        made.handle_reply("a", {"snapshot": -1, "why": "no room"})
    made.tick(0.0)
    assert hosts == ["a"] * 3 and capfd.readouterr().err == "ringrun: no snapshot was written: no room\n"
    made.request_final()
    assert made.final_due and hosts == ["a"] * 4
    made.handle_reply("a", {"snapshot": -1, "why": "no room"})
    assert not made.final_due and capfd.readouterr().err.count("no room") == 1
    made.handle_reply("a", {"snapshot": 7})
    nowhere = Snapshots(Agents(), None, 0.0)  # type: ignore[arg-type]
    nowhere.tick(time.monotonic() + 100)
    nowhere.request_final()
    assert not nowhere.final_due and len(hosts) == 4 and not capfd.readouterr().err


@pytest.mark.parametrize(
    ("snapshots", "commits", "text"),
    [
        (None, [3], "no commit is kept (--snapshots)"),
        ("/folder", [], "no commit was made"),
        ("/folder", [0], "commit 0 is kept"),
    ],
)
def test_the_report_of_an_interrupted_job_names_its_commit(
    snapshots: str | None, commits: list[int], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    class Agents:
        reached = ()

    limits = Limits(start=1, timeout=1, snapshots=snapshots)
    for commit in commits:
        limits.committed(commit)
    driver = Driver(None, Membership(1), limits, Agents(), None, False)  # type: ignore[arg-type]
    driver._on_signal("", {"signal": signal.SIGTERM})
    assert capfd.readouterr().err == f"ringrun: the job ended after SIGTERM; {text}\n"


# ---- other parts -----------------------------------------------------------------------------------------------------
def test_signs_of_life_need_the_key() -> None:
    one, other, stranger = Heartbeats(b"key"), Heartbeats(b"key"), Heartbeats(b"another")
    address = ("127.0.0.1", one._socket.getsockname()[1])
    stranger.send("host", address)
    other.send("host", address)
    one._socket.settimeout(5)
    assert one.receive() is None
    received = one.receive()
    assert received is not None and received[0] == "host"
    for heartbeats in (one, other, stranger):
        heartbeats.close()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python", "train.py", "-x"], ["python"]),
        (["/usr/bin/python3.11", "-u", "-B", "train.py"], ["/usr/bin/python3.11", "-u", "-B"]),
        (["python3", "-m", "package.module"], ["python3"]),
        (["python", "-c", "print(1)"], None),
        (["python", "-m"], None),
        (["python"], None),
        (["./train.sh"], None),
        (["python", "-X", "dev", "train.py"], None),
    ],
)
def test_what_a_zygote_can_stand_in_for(command: list[str], words: list[str] | None) -> None:
    assert python_words(command) == words


@pytest.mark.parametrize(
    "words",
    [
        ["-np", "2", "--min-np", "3"],
        ["-np", "4", "--min-np", "1", "--max-np", "3"],
        ["--min-np", "5", "-H", "localhost:2"],
        ["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "5", "2"],
        ["-np", "2", "--min-np", "1", "--snapshots", f"{__file__}/kept"],
    ],
)
def test_numbers_that_contradict_each_other(words: list[str]) -> None:
    options = make_parser().parse_args([*words, "true"])
    slots = 2 if options.hosts else options.num_proc
    with pytest.raises(ValueError, match=r"--min-np|--blacklist|--snapshots"):
        elastic.make_limits(options, [Host("localhost", slots)])


def test_restarts_keep_the_number_of_ranks() -> None:
    options = make_parser().parse_args(["-np", "3", "--restarts", "4", "true"])
    membership, limits = elastic.make_limits(options, [Host("localhost", 3)])
    assert (membership.minimum, membership.maximum, limits.resets, limits.start) == (3, 3, 4, 3)
    assert elastic.is_elastic(options) and not elastic.is_elastic(make_parser().parse_args(["-np", "3", "true"]))


def test_hosts_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3],m" ] && printf "n1\\nn2\\nn3\\nm\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    environment = {"SLURM_JOB_NODELIST": "n[1-3],m", "SLURM_TASKS_PER_NODE": "2(x3),1"}
    assert hosts_of_slurm(environment) == [Host("n1", 2), Host("n2", 2), Host("n3", 2), Host("m", 1)]
    assert hosts_of_slurm({}) == []


# ---- resources of a process that died --------------------------------------------------------------------------------
_HOLDS = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "mapped":
    memory = mmap.mmap(fd, 4096)
    os.close(fd)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_shared_memory_that_nobody_holds_is_removed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time() - 1
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # a separate folder, which concurrent jobs do not use
        monkeypatch.setattr(segments, "_FOLDER", folder)
        held, orphan, other = (Path(folder) / name for name in ("mpich_shm_1", "sm_segment.1", "psm_1"))
        for path in (held, orphan, other):
            path.write_bytes(bytes(mmap.PAGESIZE))
        words = [sys.executable, "-c", _HOLDS, str(held), how]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout
            holder.stdout.readline()
            segments.remove_orphans(time.time() + 60)  # every file is older than this time
            assert orphan.exists()
            segments.remove_orphans(began)
            assert (held.exists(), orphan.exists(), other.exists()) == (True, False, True)
            holder.kill()
        segments.remove_orphans(began)
        assert (held.exists(), other.exists()) == (False, True)


def test_a_trainer_that_a_lost_zygote_was_to_fork_has_ended() -> None:
    zygote, stub = (Peer(end) for end in socket.socketpair())

    class Zygotes:
        def start(self, trainer: Trainer) -> None:
            trainers.fork(zygote, trainer)

    ended: list[Trainer] = []
    trainers = Trainers(ended.append, Zygotes())  # type: ignore[arg-type]
    trainers.start({"rank": 0, "generation": 1}, [], stub)
    assert trainers.living() and not ended
    trainers.zygote_lost(zygote)
    assert [trainer.status for trainer in ended] == [-signal.SIGKILL] and not trainers.living()
    zygote.close()
    stub.close()


def test_a_host_that_stays_away_is_tried_less_and_less_often_and_then_given_up(monkeypatch, capfd):
    monkeypatch.setattr(agents, "_RETRY_SECONDS", 0.002)
    tries: list[float] = []

    def shell(host: str) -> list[str]:
        tries.append(made._agents[host].last_attempt)
        return ["false"]

    arguments = {"job": f"test-{os.getpid()}", "limit": 1.0}
    made = agents.Agents(queue.SimpleQueue(), arguments, shell, str, lambda _: False, only_local=True)

    def want(hosts: list[str], until: int) -> None:
        deadline = time.monotonic() + 60
        while capfd.readouterr().err.count("attempts to start its") < until and time.monotonic() < deadline:
            made.start_missing(hosts)
            time.sleep(0.001)

    try:
        want(["away.invalid"], 1)
        assert len(tries) == agents._ATTEMPTS
        assert all(later - sooner > 0.002 * 2**i for i, (sooner, later) in enumerate(itertools.pairwise(tries)))
        for _ in range(100):
            made.start_missing(["away.invalid"])
        assert len(tries) == agents._ATTEMPTS
        made.start_missing([])  # the script that lists hosts no longer names it
        want(["away.invalid"], 1)
        assert len(tries) == 2 * agents._ATTEMPTS
    finally:
        made.end()
