"""The benchmarks' own code: ratios, files and pages state what was measured, and the scripts run."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import ROOT, output_of

from ringcomm._src.cli.measured import first_to_last
from ringcomm._src.core import _core

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Imports a file of benchmarks/ or docs/ by its name, without leaving it in sys.modules."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), str(ROOT / "docs"), *sys.path])
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(BENCHMARKS), str(ROOT / "docs"))):
            del sys.modules[name]


def test_ratio_is_of_medians_and_inside_its_interval(module):
    rng = np.random.default_rng(0)
    slow, fast = rng.normal(2.0, 0.1, 31), rng.normal(1.0, 0.1, 31)
    middle, low, high = module("measure").ratio(list(slow), list(fast))
    assert middle == pytest.approx(np.median(slow) / np.median(fast))
    assert 1.5 < low < middle < high < 2.5


@pytest.mark.parametrize(("one_clock", "seconds"), [(True, [2.5, 1.0]), (False, [2.0, 0.75])])
def test_a_time_is_from_the_first_begin_to_the_last_end(one_clock, seconds):
    """The time is that of the slowest rank if ranks have no common clock."""
    times = [[(1.0, 3.0), (7.5, 8.0)], [(0.5, 2.0), (7.0, 7.75)]]  # one list per rank

    class World:
        """A world of two ranks. This is the first; each call supplies the second rank's numbers."""

        @staticmethod
        def Allreduce(own, every, op):
            signs = (-1, 1) if one_clock else ()
            others = [[[sign * pair[k] for pair in times[1]]] for k, sign in enumerate(signs)]
            np.maximum(own, others or [[[end - begin for begin, end in times[1]]]], out=every)

    assert first_to_last(World, {"a": times[0]}, one_clock) == {"a": seconds}


def test_results_of_the_same_setup_are_replaced_and_others_stay(module, tmp_path):
    measure, file = module("measure"), tmp_path / "results.json"
    measure.write_merged(file, [{"kind": "mpich", "ranks": 2, "rows": [1.23456789e-6, 2.0]}], ("kind", "ranks"))
    measure.write_merged(file, [{"kind": "openmpi", "ranks": 2, "rows": []}], ("kind", "ranks"))
    measure.write_merged(file, [{"kind": "mpich", "ranks": 2, "rows": [3.0, 4e-07]}], ("kind", "ranks"))
    assert measure.read(file) == {
        "results": [
            {"kind": "mpich", "ranks": 2, "rows": [3.0, 4e-07]},
            {"kind": "openmpi", "ranks": 2, "rows": []},
        ]
    }
    assert "[3.0, 4e-07]" in file.read_text()  # on one line


@pytest.mark.parametrize(("ours", "count"), [(1.0, 0), (1.2, 3)])
def test_a_cell_fails_that_may_take_longer_than_mpi(module, ours, count):
    seconds = dict.fromkeys(("mpi", "mpi in place"), [1.0] * 15)
    seconds |= dict.fromkeys(("ordinary", "in place", "shared"), [ours] * 15)
    result = {"ranks": 2, "machine": {"mpi": "MPICH Version: 5"}, "rows": [{"nbytes": 4, "seconds": seconds}]}
    assert len(module("host_allreduce").failing([result])) == count


def test_growth_is_the_exponent_of_a_power_law(module):
    growth = module("growth")
    assert growth.exponent({1: 7.0, 2: 1.0, 4: 2.0**1.5, 8: 8.0}, 2) == pytest.approx(1.5)
    assert set(growth.LIMITS) >= {("sets", "one more set (s)"), ("hosts", "named gradient (s)")}


@pytest.mark.parametrize("shape", [(8,), (32,), (4, 4), (8, 8), (16, 4), (4, 4, 4), (8, 4, 2)])
def test_simulated_loads_are_those_of_swings_authors(module, shape):
    """Compares with arXiv:2401.09356, which counts one route of halving's last steps."""
    swing = module("published_swing")
    found, last = swing.deficiencies(shape), {d: (s, k) for s, (d, k) in enumerate(swing.steps(shape, 0))}
    other_route = sum(2 ** (step - 1) / 2 ** (s + 1) for s, step in last.values() if step > 0)
    assert found["halving simulated"] == pytest.approx(found["halving"] - other_route, rel=1e-3)
    if len(set(shape)) == 1:  # else the ports of a side that is complete are not used
        assert found["swing simulated"] == pytest.approx(found["swing"], rel=1e-6)


@pytest.mark.parametrize("ranks", [8, 64, 256])
def test_swing_on_a_ring_is_the_librarys(module, ranks):
    swing = module("published_swing")
    menu = _core.Menu("allreduce", ranks, None, swing.network(1e-6), swing.torus((ranks,)))
    for name, seconds in zip(("bine_halving", "bine_doubling"), swing.swing((ranks,), 1 << 20, 1e-6, 1), strict=True):
        (option,) = menu.options(name, 1 << 20, segment=1 << 20, window=1)
        assert option.price.seconds == pytest.approx(seconds, rel=1e-6)
    (ring,) = menu.options("ring", 1 << 30, segment=1 << 30, window=1)
    assert ring.price.seconds == pytest.approx(2 * (ranks - 1) * (1e-6 + swing.BETA * (1 << 30) / ranks), rel=1e-6)


def calls_of_ringcomm(file: Path) -> Iterator[tuple[ast.Call, Any]]:
    """Yields each call of a function that a script imports from ringcomm, and the function."""
    tree, imported = ast.parse(file.read_text(encoding="utf-8")), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ringcomm."):
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.module, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            module, name = imported[node.func.id]
            with contextlib.suppress(ImportError):  # a framework that is not installed
                yield node, getattr(importlib.import_module(module), name)


def test_scripts_call_ringcomm_as_it_wants_to_be_called():
    """Checks calls against signatures, because daily tests do not run most scripts."""
    seen = 0
    for file in [*BENCHMARKS.glob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for call, function in calls_of_ringcomm(file):
            named = {word.arg: None for word in call.keywords}
            if None in named or any(isinstance(one, ast.Starred) for one in call.args):
                continue
            try:
                inspect.signature(function).bind(*call.args, **named)
            except TypeError as error:
                pytest.fail(f"{file.name}:{call.lineno}: {ast.unparse(call)}: {error}")
            seen += 1
    assert seen > 30


def test_the_bound_of_two_levels_counts_hosts(module):
    contest = module("contest")
    assert contest.bound(16 << 20, 4, 200e6) == pytest.approx(1.5 * (16 << 20) * 8 / 200e6)
    calls = contest.calls_in_a_timing(65536, 4, 25e6)
    assert calls * 1.5 * 65536 >= 25e6 > (calls - 1) * 1.5 * 65536


def test_a_page_keeps_its_text_and_gets_its_tables(module):
    pages = module("write_benchmarks")
    page = "before\n<!-- training -->\nold\n<!-- /training -->\nafter\n<!-- unknown -->\n"
    once = pages.filled(page)
    assert once.startswith("before\n<!-- training -->\n|") and once.endswith(
        "<!-- /training -->\nafter\n<!-- unknown -->\n"
    )
    assert "old" not in once and pages.filled(once) == once


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("host_allreduce.py", ["--sizes", "4,64K", "--repeat", "2", "--ranks", "2"]),
        ("collectives.py", ["--sizes", "4,4K", "--repeat", "1", "--ranks", "2", "--starts", "2"]),
    ],
)
def test_a_script_measures_and_writes(tmp_path, script, arguments):
    output_of([BENCHMARKS / script, *arguments, "--json", tmp_path / "a.json", "--plot", tmp_path / "a.png"], tmp_path)
    (result,) = json.loads((tmp_path / "a.json").read_text())["results"]
    assert result["ranks"] == 2 and result["rows"] and result["machine"]["mpi"]
    assert (tmp_path / "a.png").stat().st_size > 1000
