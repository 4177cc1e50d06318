"""`ringcomm timeline`: the ranks for which operations wait, files that are cut off, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.cli import main
from ringcomm._src.cli.timeline import report, waits
from ringcomm._src.cli.timeline_files import read_events, read_records

PLAN, BUCKET = "plan/optimizer0.plan1", "plan/optimizer0.plan1/0"


class Timeline:
    """Events of a rank. Times are seconds; `begin`: when the rank's host was started."""

    def __init__(self, rank: int, end: float = 10.0, host: str = "a", begin: float = 0.0) -> None:
        self.rank, self.begin, self.rows = rank, begin, dict[str, int]()
        self.events: list[dict[str, Any]] = []
        self.metadata(0, "process_name", name=f"rank {rank} ({host})")
        self.metadata(0, "clocks", trace_ns=int((end - begin) * 1e9), unix_ns=int(end * 1e9))

    def metadata(self, row: int, kind: str, /, **arguments: object) -> None:
        self.events.append({"name": kind, "ph": "M", "pid": self.rank, "tid": row, "args": arguments})

    def add(self, kind: str, row: str, begin: float, end: float | None = None, **arguments: object) -> None:
        if row not in self.rows:
            self.rows[row] = len(self.rows) + 1
            self.metadata(self.rows[row], "thread_name", name=row)
        event = {"name": kind, "cat": kind, "ph": "X", "pid": self.rank, "tid": self.rows[row]}
        times = {"ts": (begin - self.begin) * 1e6, "dur": ((end or begin) - begin) * 1e6}
        self.events.append(event | times | {"args": {"thread": "worker", **arguments}})

    def named(self, row: str, begin: float, end: float, *ready: int) -> None:
        """Adds an operation that waits half of its time for other ranks."""
        self.add("queue", row, begin)
        for rank in ready:
            self.add("ready", row, begin, detail=f"rank {rank}")
        self.add("agree", row, begin, (begin + end) / 2)
        self.add("done", row, end)

    def write(self, folder: Path | str) -> str:
        path = Path(folder, f"t{self.rank}.json")
        path.write_text("[" + ",\n".join(map(json.dumps, self.events)) + "\n]\n")
        return str(path)


@st.composite
def hangs(draw: st.DrawFn) -> tuple[int, set[int], set[int], bool]:
    """Draws a number of ranks, the late ones, the ranks with a file, and whether it has run before."""
    size = draw(st.integers(2, 4))
    ranks = st.sets(st.integers(0, size - 1), min_size=1)
    late = draw(ranks.filter(lambda late: len(late) < size))
    given_ = draw(ranks.filter(lambda found: found - late))
    return size, late, given_, draw(st.booleans())


@given(hangs())
def test_late_ranks_are_found(drawn: tuple[int, set[int], set[int], bool]) -> None:
    size, late, given_, before = drawn
    early = [rank for rank in range(size) if rank not in late]
    with TemporaryDirectory() as folder:
        paths = []
        for rank in given_:
            # Hosts with different clocks. Only the file of rank 0, the coordinator, has "ready".
            made = Timeline(rank, host=f"host{rank % 2}", begin=rank % 2 * 5.0)
            submitted = range(size) if rank == 0 else ()
            made.named("allreduce.loss", 6.0, 6.1, *submitted)
            if before:
                made.named("allreduce.x", 6.2, 6.3, *submitted)
            if rank not in late:
                made.add("queue", "allreduce.x", 7.0)
            for other in early if rank == 0 else ():
                made.add("ready", "allreduce.x", 7.0, detail=f"rank {other}")
            paths.append(made.write(folder))
        records = read_records(paths)
        (wait,) = waits(records)
        lines = "\n".join(report(records, 6))
    assert set(wait.pending) == given_ - late
    assert set(wait.missing) == (late if 0 in given_ else late & given_)
    assert "'allreduce.x' has " in lines and "for 3 s on rank" in lines
    for rank in wait.missing:
        newest = "allreduce.x" if before else "allreduce.loss"
        known = f"rank {rank} completed '{newest}' last" if rank in given_ else f"rank {rank} has no file here"
        assert known in lines


def test_an_operation_of_some_ranks_waits_for_these_only(tmp_path: Path) -> None:
    made = [Timeline(rank) for rank in range(3)]
    for one in made:
        one.named("allreduce.loss", 1.0, 1.1)
    for one in made[1:]:
        one.named("allreduce.part", 2.0, 2.1)
    made[1].add("queue", "allreduce.part", 3.0)
    records = read_records([one.write(tmp_path) for one in made])
    assert [wait.missing for wait in waits(records)] == [(2,)]


def test_ranks_that_wait_for_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [Timeline(rank) for rank in range(2)]
    for number in range(9):
        made[0].add("queue", f"a{number}", 5.0 + number / 10)
    made[1].add("queue", "b", 5.0)
    assert main(["timeline", *(one.write(tmp_path) for one in made)]) == 0
    text = capsys.readouterr().out
    assert (
        "'a0' and 8 more have waited for 5 s on rank 0: rank 1 has not submitted them\n  rank 1 waits for 'b'" in text
    )
    assert (
        "'b' has waited for 5 s on rank 1: rank 0 has not submitted it\n  rank 0 waits for 'a0', 'a1', 'a2', ..."
        in text
    )
    assert "and 3 more that are pending" in text


def test_calls_of_a_process_group(tmp_path: Path) -> None:
    made = [Timeline(rank) for rank in range(2)]
    for one in made:
        for call in range(3 - one.rank):
            one.add("queue", "process group 0", call, call=call)
            if call < 2:
                one.add("run", "process group 0", call, call + 0.5, call=call)
    records = read_records([one.write(tmp_path) for one in made])
    assert [(wait.oldest.name, wait.missing) for wait in waits(records)] == [("call 2 of process group 0", (1,))]


def test_a_step_of_an_optimizer_names_the_tensors_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [Timeline(rank) for rank in range(2)]
    for one in made:
        for bucket in (BUCKET, f"{PLAN}/1"):
            one.metadata(0, "tensors", name=bucket, tensors=[f"{bucket[-1]}.{kind}" for kind in ("w", "b", "x", "y")])
            one.add("run", bucket, 1.0, 1.1)
        one.add("queue", PLAN, 7.0)
        one.add("agree", PLAN, 7.0, 7.1)
        one.add("run", BUCKET, 7.2, 7.3)
    assert main(["timeline", *(one.write(tmp_path) for one in made)]) == 0
    text = capsys.readouterr().out
    assert f"  -2.8000 s  {BUCKET} (0.w, 0.b, 0.x, ...)  done     100 ms" in text
    assert f"'{PLAN}' has been pending for 3 s on ranks 0, 1: every rank has submitted it\n" in text
    assert text.endswith(f"  '{PLAN}/1' (1.w, 1.b, 1.x, ...) is not reduced on ranks 0, 1\n")


def test_ranks_that_compute_or_are_in_a_blocking_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [Timeline(rank) for rank in range(3)]
    for one in made[:2]:
        one.named("allreduce.loss", 1.0, 2.0 + one.rank)
    assert main(["timeline", *(one.write(tmp_path) for one in made)]) == 0
    text = capsys.readouterr().out
    assert "all ranks completed their last operation 7 s before the end, or earlier: they compute, or are in a" in text
    assert "rank 2 on a\n  no operation in its file\n" in text


def test_short_times_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Timeline(0, end=1.8e9, begin=1.8e9 - 10.0)
    made.add("run", "ordered", 1.8e9 - 9.0, thread="caller")
    made.events[-1]["dur"] = 0.4
    assert main(["timeline", made.write(tmp_path)]) == 0
    assert "  ordered    done   400 ns\n" in capsys.readouterr().out


def test_a_job_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [Timeline(0), Timeline(1, end=7.0)]
    for one in made:
        for begin in (1.0, 2.0, 3.0):
            one.named("allreduce.loss", begin, begin + 0.1 * begin)
        one.add("run", "ordered", 4.0, 4.1, thread="caller")
    made[0].add("queue", "allreduce.x", 5.0)
    made[0].add("done", "allreduce.x", 5.5, detail="failed")
    assert main(["timeline", "--last", "2", *(one.write(tmp_path) for one in made)]) == 0
    text = capsys.readouterr().out
    assert "the file of rank 1 ends 3 s before the newest one: the process has ended" in text
    assert "'allreduce.x' failed on rank 0, 4.5 s before the end" in text
    assert "no operation is pending" in text
    assert "  allreduce.loss      6  200 ms   300 ms                50%" in text


@given(st.integers(1, 200))
def test_a_file_that_is_cut_off(removed: int) -> None:
    made = Timeline(0)
    for number in range(5):
        made.add("queue", f"allreduce.{number}", number)
    with TemporaryDirectory() as folder:
        path = made.write(folder)
        Path(path).write_bytes(Path(path).read_bytes()[:-removed])
        events = read_events(path)
        assert events == made.events[: len(events)] and len(events) >= len(made.events) - 4
        assert read_records([path])[0].pending


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json"], "No such file or directory: 'none.json'"),
        (["."], "Is a directory"),
        (["TEXT"], "is not a timeline of ringcomm"),
        (["EMPTY"], "is not a timeline of ringcomm"),
        (["FOREIGN"], "is not a timeline of ringcomm"),
        (["OBJECT"], "is not a timeline of ringcomm"),
        (["GOOD", "GOOD"], "are both of rank 0: give one job's files"),
        (["GOOD", "--last", "0"], "--last must be at least 1"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"TEXT": "text", "EMPTY": "[]", "FOREIGN": '[{"ph": "X", "pid": 0, "ts": 1}]', "OBJECT": "{}"}
    files = {"GOOD": Timeline(0).write(tmp_path)}
    for name, text in texts.items():
        files[name] = str(tmp_path / name)
        (tmp_path / name).write_text(text)
    assert main(["timeline", *(files.get(argument, argument) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out
