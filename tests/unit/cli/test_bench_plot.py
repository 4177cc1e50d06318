"""The plot of `ringcomm bench`, and the advice of `ringcomm info`."""

from __future__ import annotations

import argparse
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm._src.cli import bench_plot, info_advice
from ringcomm._src.cli.bench_report import Row

OTHERS = ["ring", "tree", "all_to_all", "butterfly_doubling", "circulant", "round_robin", "int8"]


def rows_of(times):
    """Returns rows of the times, which are given by name and size; ratios have intervals of 10 %."""
    rows = []
    for (name, size), seconds in times.items():
        row = Row(size, size // 4, "float32", name, name, seconds, 0.0, 0.0, 0)
        if ("mpi", size) in times:
            row.speedup = times["mpi", size] / seconds
            row.speedup_low, row.speedup_high = row.speedup * 0.9, row.speedup * 1.1
        rows.append(row)
    return rows


@given(data=st.data(), mpi=st.booleans(), others=st.lists(st.sampled_from(OTHERS), unique=True))
@settings(max_examples=8)
def test_at_most_six_lines_and_each_has_a_name(data, mpi, others, tmp_path_factory):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    names = ["auto", "shared_arrays", *(["mpi"] if mpi else []), *others]
    seconds = st.floats(1e-6, 1e-1)
    rows = rows_of({(name, size): data.draw(seconds) for name in names for size in (4, 1024, 1 << 20)})
    shown = bench_plot.lines_of(rows)
    assert (
        len(shown) == min(len(names), bench_plot.MOST_LINES)
        and names[: 3 if mpi else 2] == list(shown)[: 3 if mpi else 2]
    )
    saved = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
        bench_plot.plot(argparse.Namespace(plot="x.png", collective="allreduce", op="sum", dtype="float32"), 2, rows)
    (axes,) = saved[0].axes
    written = {text.get_text() for text in axes.texts}
    assert set(others) & set(shown) == written & set(OTHERS) and len(axes.get_yticks()) > 0
    assert ("MPI" in written) == mpi and "ringcomm" in written
    assert (bench_plot.RATIO if mpi else bench_plot.TIME) in axes.get_ylabel()


FACTS = {
    "mpi": {"available": True, "thread_level": "multiple"},
    "ranks": {"size": 2, "per_host": {"a": 2}, "shared_memory": True, "why": ""},
    "host_cores": 2,
    "binding": "each to its share of this host's cores",
    "frameworks": {"torch": "2.5", "tensorflow": None, "jax": None},
    "gpus": [],
    "gpu_routes": {"gpus": 0, "why": "", "chosen": "", "routes": {}},
    "huge_pages": "advise",
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"mpi": {"available": False}}, "ringcomm[mpich]"),
        ({"mpi": {"available": True, "thread_level": "single"}}, "thread level is single"),
        ({"ranks": FACTS["ranks"] | {"shared_memory": False, "why": "no space"}}, "no space"),
        ({"host_cores": 1}, "2 ranks share 1 core: start at most 1 on this host"),
        ({"binding": "by the launcher; some ranks share cores"}, "ringrun"),
        ({"binding": "no: failed"}, "not bound to cores (failed)"),
        ({"frameworks": dict.fromkeys(FACTS["frameworks"])}, "ringcomm[torch]"),
        ({"gpus": ["H200"], "gpu_routes": FACTS["gpu_routes"] | {"why": "no driver"}}, "no driver"),
        ({"huge_pages": "never"}, "small pages"),
    ],
)
def test_info_lists_what_to_fix(changes, told):
    found = info_advice.advice(FACTS | changes)
    assert len(found) == (told is not None)
    if told:
        assert told in found[0] and not re.search(r"\n", found[0])
