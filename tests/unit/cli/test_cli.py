"""The command line: `show` draws schedules, `bench` detects wrong results, `info` reports."""

from __future__ import annotations

import argparse
import json
import platform
import re
import runpy
import sys
import types
from itertools import pairwise
from pathlib import Path
from unittest import mock

import mpi_case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import ROOT, output_of, run

import ringcomm
from ringcomm._src.algorithms.messages import messages
from ringcomm._src.base.ops import NUMBERS
from ringcomm._src.cli import bench_cases, main, picture, show_text
from ringcomm._src.cli.sizes import parse_size, parse_sizes
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core
from ringcomm._src.platform import bootstrap

ALGORITHMS = [(a.collective, a.name) for a in _core.algorithms()]


def ranks_of(collective, name, size, root=0):
    return [_core.schedule(collective, name, rank, size, root) for rank in range(size)]


# ---- sizes -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 20), st.sampled_from([("", 0), ("K", 10), ("m", 20), ("GB", 30), ("KiB", 10)]))
def test_sizes_are_powers_of_1024(number, unit):
    assert parse_size(f"{number}{unit[0]}") == number << unit[1]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(2, 5))
def test_ranges_of_sizes(low, more, factor):
    assert parse_sizes(f"{1 << low}-{1 << low + more}") == [1 << e for e in range(low, low + more + 1)]
    stepped = parse_sizes(f"7,{1 << low}-{1 << low + more}/{factor}")[1:]
    assert stepped[0] == 1 << low and stepped[-1] * factor > 1 << low + more
    assert all(b == a * factor for a, b in pairwise(stepped))


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0001", "K", "4Q"])
def test_what_is_no_size(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parse_size(text)


# ---- show ------------------------------------------------------------------------------------------------------------


def numbers(text, blocks):
    """Parses a range: "0-2,t1" -> [0, 1, 2, blocks + 1]."""
    out = []
    for part in text.split(","):
        ends = [int(e[1:]) + blocks if e.startswith("t") else int(e) for e in part.split("-")]
        out += range(ends[0], ends[-1] + 1)
    return out


def read_table(text, blocks):
    """Parses the printed table into {(round, rank): set of (kind, peer, block, source)}."""
    cells, current = {}, -1
    for line in text.splitlines():
        columns = (line + " ").split(" | ")
        if len(columns) < 2 or columns[0].strip() == "round":
            continue
        current = int(columns[0]) if columns[0].strip() else current
        for rank, cell in enumerate(columns[1:]):
            steps = cells.setdefault((current, rank), set())
            if found := re.fullmatch(r"([→←])(\S+) (\+?)\[(\S+)\]", cell.strip()):
                kind = "send" if found[1] == "→" else "reduce" if found[3] else "receive"
                steps |= {
                    (kind, peer, block, -1) for peer in numbers(found[2], 0) for block in numbers(found[4], blocks)
                }
            elif found := re.fullmatch(r"\[(\S+)\] (\+?=) \[(\S+)\]", cell.strip()):
                kind = "combine" if found[2] == "+=" else "copy"
                steps.add((kind, -1, numbers(found[1], blocks)[0], numbers(found[3], blocks)[0]))
            else:
                assert not cell.strip()
    return cells


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9])
def test_the_text_is_the_schedule(collective, name, size):
    schedules = ranks_of(collective, name, size, root=size // 2)
    text = show_text.describe(schedules)
    cells = read_table(text, schedules[0].blocks)
    for rank, schedule in enumerate(schedules):
        for index, steps in enumerate(schedule.rounds):
            assert cells.get((index, rank), set()) == {(s.kind, s.peer, s.block, s.source) for s in steps}
    assert "\nproved: " in text


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
@pytest.mark.parametrize("size", range(1, 10))
def test_what_is_drawn_ends_complete(collective, name, size):
    root = size // 2
    schedules = ranks_of(collective, name, size, root)
    complete = _core.follow(schedules)
    for rank, schedule in enumerate(schedules):
        promised = {"reduce": range(schedule.blocks if rank == root else 0), "reducescatter": [rank]}.get(
            collective, range(schedule.blocks)
        )
        assert len(complete[rank]) == len(schedule.rounds) + 1
        assert all(complete[rank][-1][block] == 1 for block in promised)
    sent = sum(len({s.peer for s in steps if s.kind == "send"}) for schedule in schedules for steps in schedule.rounds)
    assert len(messages(schedules)) == sent


def rounds_of(schedule, block):
    """Returns for each round the messages and bytes of its busier direction, and the bytes reduced."""
    for steps in schedule.rounds:
        sends = [s.peer for s in steps if s.kind == "send"]
        takes = [s.peer for s in steps if s.kind in ("receive", "reduce")]
        reduced = sum(s.kind in ("reduce", "combine") for s in steps)
        yield (
            max(len(set(sends)), len(set(takes))),
            max(len(sends), len(takes)) * block,
            reduced * block,
            len(set(sends)),
            len(sends) * block,
        )


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
@given(size=st.integers(1, 9), nbytes=st.integers(0, 1 << 30), model=st.tuples(*[st.floats(1e-12, 1e-3)] * 4))
def test_the_cost_is_that_of_the_slowest_rank_in_each_round(collective, name, size, nbytes, model):
    alpha, beta, gap, gamma = model
    schedules = ranks_of(collective, name, size)
    parts = size if collective == "alltoall" else schedules[0].blocks
    loads = [list(rounds_of(schedule, nbytes / parts)) for schedule in schedules]
    seconds = 0.0
    for index in range(max(len(rank) for rank in loads)):
        seconds += max(
            (alpha + sent * beta + (messages - 1) * gap if messages else 0.0) + reduced * gamma
            for messages, sent, reduced, _, _ in (rank[index] for rank in loads if index < len(rank))
        )
    network = _core.Network(**(NETWORK | {"alpha": alpha, "beta": beta, "gap": gap, "gamma": gamma}))
    price = _core.price(schedules, nbytes, network)
    assert price.seconds == pytest.approx(seconds)
    assert price.messages == max(sum(load[3] for load in rank) for rank in loads)
    assert price.bytes == pytest.approx(max(sum(load[4] for load in rank) for rank in loads))
    assert price.reduced == pytest.approx(max(sum(load[2] for load in rank) for rank in loads))
    assert "cost: " in show_text.cost(schedules, nbytes, network)


def test_a_picture_is_drawn(tmp_path):
    matplotlib = pytest.importorskip("matplotlib.image")

    heights = []
    for size in (1, 4, 8):
        picture.draw(ranks_of("allreduce", "ring", size), str(tmp_path / "ring.png"))
        pixels = matplotlib.imread(tmp_path / "ring.png")
        assert len(np.unique(pixels[..., 1])) > 10  # shades of green
        heights.append(pixels.shape[0])
    assert heights == sorted(set(heights))  # more rounds, more rows


@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_phases_part_the_rounds_where_reducing_ends(collective, name, size):
    schedules = ranks_of(collective, name, size)
    kinds = [
        {step.kind for schedule in schedules for step in (*schedule.rounds, *[()] * rounds)[index]}
        for rounds in [max(len(schedule.rounds) for schedule in schedules)]
        for index in range(rounds)
    ]
    reduces = [bool(found & {"reduce", "combine"}) for found in kinds]
    found = picture.phases(schedules)
    assert bool(found) == any(reduces)
    if found:
        assert [index for _, first, last in found for index in range(first, last + 1)] == list(range(len(kinds)))
        (what, _, last), *rest = found
        assert what == "share-reduce" and reduces[last] and not any(reduces[last + 1 :])
        assert [name for name, *_ in rest] == ["share-only"] * (last + 1 < len(kinds))


def test_a_wide_schedule_fits_the_terminal_or_says_what_is_left_out():
    schedules = ranks_of("allreduce", "ring", 9)
    whole = show_text.describe(schedules)
    assert show_text.describe(schedules, 10_000) == whole
    for width in range(12, max(map(len, whole.splitlines()[2:-2])), 7):
        lines = show_text.describe(schedules, width).splitlines()
        table = [line for line in lines if " | " in line or "-+-" in line]
        assert max(map(len, table)) <= width and (lines[0], lines[-1]) == (
            whole.splitlines()[0],
            whole.splitlines()[-1],
        )
        (note,) = [line for line in lines if "not shown" in line]
        if first := re.search(r"ranks? (\d)", note):
            assert table[0].endswith(f"rank {int(first[1]) - 1}")
        assert all(any(full.startswith(line.rstrip()) for full in whole.splitlines()) for line in table)


@pytest.mark.parametrize(
    "command",
    ["show ring --ranks 3 --output x.png", "simulate allreduce --ranks 4 --plot x.png", "bench barrier --plot x.png"],
)
def test_a_missing_extra_is_one_line_before_anything_else(command, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(command.split()) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1 and 'pip install "ringcomm[bench]"' in said.err


def test_show_command(tmp_path, capsys):
    assert main(["show"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for _, name in ALGORITHMS)
    assert main(["show", "ring", "--ranks", "4", "--output", str(tmp_path / "ring.svg")]) == 0
    assert "6 rounds" in capsys.readouterr().out and (tmp_path / "ring.svg").stat().st_size > 1000
    assert main(["show", "ring", "--ranks", "64", "--cost"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[1].startswith("proved: ") and lines[2].startswith("cost: 126 rounds")
    assert main(["show", "no_such_algorithm"]) == 2
    assert "ring" in capsys.readouterr().err  # the message lists the algorithms
    assert main(["show", "ring", "--ranks", "0"]) == 2


def test_show_topology(tmp_path, capsys):
    """Draws a graph with its weights; refuses a graph whose weights do not preserve the mean."""
    picture, program = tmp_path / "pairs.svg", tmp_path / "graphs.py"
    assert main(["show", "--topology", "one_peer_exponential", "--ranks", "4", "--output", str(picture)]) == 0
    said = capsys.readouterr().out
    assert said.count("0.500") == 16 and "doubly stochastic; spectral gap of a period 1; exact mean" in said
    assert picture.stat().st_size > 1000
    program.write_text(
        "import ringcomm\nringcomm.register_topology('to_the_first', lambda r, p, t: range(1, p) if r == 0 else [])\n"
    )
    assert main(["show", "--topology", "to_the_first", "--file", str(program), "--ranks", "4"]) == 2
    assert "'to_the_first' of 4 ranks: edges have one direction" in capsys.readouterr().err
    assert main(["show", "--topology", "list"]) == 0
    assert {"ring", "groups"} < {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_a_schedule_that_is_wrong_is_called_wrong():
    broken = ranks_of("allreduce", "ring", 4)
    rounds = [list(steps) for steps in broken[2].rounds]
    rounds[1] = [step for step in rounds[1] if step.kind != "send"]
    broken[2] = _core.Schedule("allreduce", "ring", 2, 4, 0, 4, [], rounds)
    assert "NOT PROVED" in show_text.describe(broken)
    with pytest.raises(ValueError, match="rank 3, round 1: receives block 1 from rank 2"):
        _core.follow(broken)


# ---- bench -----------------------------------------------------------------------------------------------------------


def reduced(arrays, op):
    if arrays[0].dtype == np.bool_:
        return np.any(arrays, axis=0) if op in ("sum", "max", "average") else np.all(arrays, axis=0)
    wide = np.stack([a.astype(np.float64) for a in arrays])
    if op == "average":
        mean = wide.mean(0)
        return (np.trunc(mean) if arrays[0].dtype.kind in "iu" else mean).astype(arrays[0].dtype)
    return {"sum": np.sum, "min": np.min, "max": np.max, "product": np.prod}[op](wide, axis=0).astype(arrays[0].dtype)


def answer(case, inputs):
    """Returns the expected result of rank `case.rank`, computed from all ranks' inputs."""
    p, r, part = case.size, case.rank, case.part
    if case.collective in ("allreduce", "reduce"):
        return reduced(inputs, case.op)
    if case.collective in ("scan", "exscan"):
        ranks = r + (case.collective == "scan")
        return reduced(inputs[:ranks], case.op) if ranks else case.output
    if case.collective == "broadcast":
        return inputs[case.root]
    if case.collective == "allgather":
        return np.concatenate(inputs)
    if case.collective == "reducescatter":
        return reduced([x[r * part : (r + 1) * part] for x in inputs], case.op)
    return np.concatenate([inputs[s][r * part : (r + 1) * part] for s in range(p)])


@pytest.mark.parametrize("collective", [c for c in _core.COLLECTIVES if c != "barrier"])
@given(data=st.data())
def test_right_results_pass_and_wrong_ones_are_counted(collective, data):
    size = data.draw(st.integers(1, 6))
    rank, root = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    dtype = data.draw(st.sampled_from([d for d in NUMBERS if d != "bfloat16"]))
    op, shift = data.draw(st.sampled_from(["sum", "average", "min", "max", "product"])), data.draw(st.integers(0, 12))
    nbytes = data.draw(st.integers(0, 3000))
    cases = [
        bench_cases.Case(collective, None, types.SimpleNamespace(rank=r, size=size), dtype, op, root, nbytes, False)
        for r in range(size)
    ]
    for case in cases:
        case.refill(shift)
    case = cases[rank]
    right = answer(case, [c.input.copy() for c in cases])
    case.output[...] = right
    assert case.wrong() == 0
    none = (collective == "reduce" and rank != root) or (collective == "exscan" and rank == 0)
    if len(case.output) and not none:
        place = data.draw(st.integers(0, len(case.output) - 1))
        case.output[place] = ~right[place] if case.dtype == np.bool_ else right[place] + 1
        assert case.wrong() == 1


def bench_on_unequal_hosts():
    from mpi4py import MPI

    host = ("two ranks", "two ranks", "one")[MPI.COMM_WORLD.rank]
    words = ["bench", "broadcast", "--sizes", "64,16K", "--algorithms", "all", "--repeat", "1", "--warmup", "1"]
    with mock.patch.object(bootstrap, "host_key", lambda: (host,)):
        assert main(words) == 0


def test_bench_on_hosts_of_unequal_sizes():
    """All ranks compare the same algorithms, although shared memory and hosts differ."""
    text = mpi_case.run(3, bench_on_unequal_hosts, limit=60).text
    assert "the slowest rank's times" in text
    for name in ("auto", "shared_arrays", "binomial", "two_level:binomial", "mpi"):
        assert len(re.findall(rf"^ .* float32 +{name}\b", text, re.M)) == 2, (name, text)


@pytest.mark.parametrize("collective", _core.COLLECTIVES)
def test_bench_on_ranks(collective, tmp_path):
    file = tmp_path / "rows.json"
    text = mpi_case.output_of(
        [
            "-m",
            "ringcomm",
            "bench",
            collective,
            "--sizes",
            "0,4,1000,96K",
            "--algorithms",
            "all",
            "--repeat",
            "1",
            "--json",
            file,
            "--plot",
            tmp_path / "rows.png",
            *(["--wire", "int8,topk:0.1"] if collective == "allreduce" else []),
        ],
        tmp_path,
        ranks=2,
    )
    document = json.loads(file.read_text())
    encoded = {"int8", "topk:0.1"} if collective == "allreduce" else set()
    names = encoded | {a.name for a in _core.algorithms() if a.collective == collective} | {"auto", "mpi"}
    names |= set() if collective == "barrier" else {"shared_arrays"}
    sizes = 1 if collective == "barrier" else 4
    assert len(document["rows"]) == sizes * len(names) and {row["algorithm"] for row in document["rows"]} == names
    assert all(row["wrong"] == 0 and row["time"] > 0 and len(row["times"]) >= 1 for row in document["rows"])
    assert document["ranks"] == 2 and document["machine"]["mpi"]
    for size in {row["size"] for row in document["rows"]}:
        ours = {r["algorithm"]: r for r in document["rows"] if r["size"] == size and r["algorithm"] != "mpi"}
        least = min(row["time"] for name, row in ours.items() if name not in {"shared_arrays", *encoded})
        assert ours["auto"]["loss"] == pytest.approx(ours["auto"]["time"] / least - 1)
        assert all(row["loss"] is None for name, row in ours.items() if name != "auto")
    losses = [row["loss"] for row in document["rows"] if row["loss"] is not None]
    (told,) = re.findall(r"at most ([\d.]+) %.*, ([\d.]+) % in the geometric mean", text)
    assert float(told[0]) == pytest.approx(100 * max(losses), abs=0.051)
    assert float(told[1]) == pytest.approx(100 * (np.exp(np.mean(np.log1p(losses))) - 1), abs=0.051)
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == len(document["rows"])
    assert (tmp_path / "rows.png").stat().st_size > 1000


def test_bench_of_a_dtype_that_mpi_has_not(tmp_path):
    text = mpi_case.output_of(
        [
            "-m",
            "ringcomm",
            "bench",
            "allreduce",
            "--sizes",
            "1K",
            "--dtype",
            "float16",
            "--op",
            "average",
            "--repeat",
            "1",
        ],
        tmp_path,
        ranks=2,
    )
    assert "MPI has no float16" in text and "auto" in text


def test_bench_refuses_what_it_does_not_know(tmp_path):
    done = run(["-m", "ringcomm", "bench", "allreduce", "--algorithms", "rign"], tmp_path, ranks=2)
    assert (
        done.returncode != 0
        and done.stderr.count("there is no allreduce algorithm 'rign'") == 1
        and "ring" in done.stderr
    )


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == ringcomm.__version__


# ---- info ------------------------------------------------------------------------------------------------------------


def test_info_without_mpirun(tmp_path):
    program = (
        "import sys; from ringcomm._src.cli import main; status = main(['info', '--json']);"
        "heavy = {'torch', 'tensorflow', 'cupy', 'matplotlib'} & set(sys.modules);"
        "sys.exit(status or ' '.join(heavy) or 0)"
    )
    facts = json.loads(output_of(["-c", program], tmp_path))
    assert facts["ranks"]["size"] == 1 and facts["cores"] >= 1
    assert facts["mpi"]["available"] and facts["mpi"]["path"].startswith("/")
    assert facts["frameworks"]["numpy"] == np.__version__
    assert all(state["on"] or state["why"] for state in facts["enabled"].values())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="asks about x86-64")
def test_the_kernels_are_the_best_that_the_processor_has():
    flags = set(re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    sets = {
        "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
        "avx2": {"avx2", "fma", "f16c"},
        "generic": set(),
    }
    sets["avx512"] |= sets["avx2"]
    assert _core.instruction_set() == next(name for name, needed in sets.items() if needed <= flags)


def test_info_on_ranks(tmp_path):
    facts = json.loads(mpi_case.output_of(["-m", "ringcomm", "info", "--json"], tmp_path, ranks=2))
    assert facts["ranks"]["size"] == 2 and list(facts["ranks"]["per_host"].values()) == [2]
    text = output_of(["-m", "ringcomm", "info"], tmp_path, ranks=2)
    assert text.count("thread level") == 1 and facts["mpi"]["vendor"] in text


def test_the_page_of_options_is_current():
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(ROOT / "docs" / "write_options.py"), run_name="page")["page"]()
