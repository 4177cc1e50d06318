"""`ringcomm simulate`: prices equal the chooser's, bounds hold, large clusters take moments."""

from __future__ import annotations

import argparse
import json
import re
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.cli import main, simulate
from ringcomm._src.cli.sizes import parse_link, parse_seconds
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

networks = st.builds(
    lambda alpha, beta, gap: _core.Network(**(NETWORK | {"alpha": alpha, "beta": beta, "gap": gap})),
    st.floats(1e-6, 1e-3),
    st.floats(1e-11, 1e-7),
    st.floats(0, 1e-5),
)


@pytest.mark.parametrize("text, value", [("50us", 5e-5), ("1.5ms", 1.5e-3), ("7ns", 7e-9), ("2 s", 2.0), ("0us", 0.0)])
def test_times(text, value):
    assert parse_seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text, value", [("200mbit,50us", (4e-8, 5e-5)), ("100gbit,1us", (8e-11, 1e-6))])
def test_links(text, value):
    assert parse_link(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "200mbit", "200,50us", "0mbit,1us", "-1mbit,1us", "1mbit,1", "1mbit,x"])
def test_what_is_no_link(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parse_link(text)


@given(st.sampled_from(_core.COLLECTIVES), st.integers(1, 60), st.integers(1, 9), st.integers(0, 1 << 28), networks)
def test_rows_are_the_choosers_prices(collective, ranks, per_host, size, network):
    rows = simulate.simulate(collective, [ranks], [size], per_host, network)
    menu = _core.Menu(collective, ranks, [rank // per_host for rank in range(ranks)], network)
    by_name = [a.name for a in _core.algorithms() if a.collective == collective and not a.automatic]
    nbytes = 0 if collective == "barrier" else size
    automatic, *others = (menu.options(name, nbytes, memory=True) for name in ("", *by_name))
    assert {(row.algorithm, row.window, row.time) for row in rows} == {
        (o.name, o.window, o.price.seconds) for options in (automatic, *others) for o in options
    }
    (chosen,) = (row for row in rows if row.chosen)
    assert chosen.algorithm in {o.name for o in automatic}
    assert chosen.time <= 1.03 * min(o.price.seconds for o in automatic)
    assert all(a.time <= b.time for a, b in pairwise(rows))


@given(st.integers(2, 200), st.integers(1, 1 << 28), networks)
def test_no_allreduce_beats_the_links(ranks, size, network):
    least = 2 * (ranks - 1) / ranks * size * network.beta
    for row in simulate.simulate("allreduce", [ranks], [size], 1, network):
        rounded = 1e-9 * least
        if row.algorithm in ("ring", "round_robin", "circulant"):
            assert row.time >= least - rounded
        assert row.time >= least / 2 - rounded  # lower bound: each rank receives a complete buffer
        assert row.time >= network.alpha


def test_clusters_that_no_lab_has(tmp_path, capsys):
    file, picture = tmp_path / "rows.json", tmp_path / "rows.png"
    command = ["simulate", "allreduce", "--ranks", "8,64,1024,16384", "--sizes", "4K,1M,64M", "--ranks-per-host", "8"]
    assert main([*command, "--link", "200mbit,50us", "--json", str(file), "--plot", str(picture)]) == 0
    text, document = capsys.readouterr().out, json.loads(file.read_text())
    assert picture.stat().st_size > 10000
    assert document["network"]["beta"] == pytest.approx(4e-8) and document["network"]["alpha"] == pytest.approx(5e-5)
    names = [a.name for a in _core.algorithms() if a.collective == "allreduce"]
    groups = groupby(document["rows"], lambda row: (row["ranks"], row["size"]))
    for (ranks, _), rows in ((key, list(rows)) for key, rows in groups):
        two = ["shared"] if ranks == 8 else [f"two_level:{name}" for name in names]
        assert sorted(row["algorithm"] for row in rows) == sorted(names + two)
        (chosen,) = (row for row in rows if row["chosen"])
        assert chosen["time"] <= 1.03 * min(row["time"] for row in rows)
    assert len([line for line in text.splitlines() if line.startswith("*")]) == 12
    assert "16384 ranks, 8 on each host" in text
    assert set(document["guessed"]) == set(NETWORK) - {"alpha", "beta", "hidden"}
    (guesses,) = [line for line in text.splitlines() if line.startswith("# assumed")]
    assert "between hosts" not in guesses and all(word in guesses for word in ("inside", "reducing", "copying"))


@pytest.mark.parametrize("collective", _core.COLLECTIVES)
def test_every_collective(collective, capsys):
    assert main(["simulate", collective, "--ranks", "16384", "--sizes", "1,1M"]) == 0
    assert capsys.readouterr().out.count("\n*") == (1 if collective == "barrier" else 2)


@pytest.mark.parametrize("collective", ["allreduce", "reduce", "broadcast", "allgather", "reducescatter"])
def test_two_levels_of_every_collective(collective, capsys):
    command = f"simulate {collective} --ranks 16 --ranks-per-host 4 --sizes 16M --link 200mbit,50us".split()
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [a.name for a in _core.algorithms() if a.collective == collective]
    for name in names:
        assert sum(f" two_level:{name} " in line for line in lines) == 1
    assert main([*command, "--algorithms", ",".join(f"two_level:{name}" for name in names)]) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if "two_level:" in line]) == len(names)


def test_chosen_algorithms(capsys):
    command = ["simulate", "allreduce", "--ranks", "16", "--ranks-per-host", "4", "--sizes", "1M"]
    assert main([*command, "--algorithms", "ring,two_level:ring"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "ring" in line]
    assert len(rows) == 2 and rows[0].startswith("*  two_level:ring") and not rows[1].startswith("*")
    assert main([*command, "--algorithms", "rign"]) == 2
    assert "two_level:circulant" in capsys.readouterr().err  # the message lists the algorithms
    assert main(["simulate", "allreduce", "--ranks", "0"]) == 2


def test_what_travels_encoded(capsys):
    command = ["simulate", "allreduce", "--ranks", "8,1024", "--sizes", "64,64M", "--ranks-per-host", "2"]
    assert main([*command, "--link", "200mbit,50us", "--wire", "int8"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "times as fast" in line]
    assert len(lines) == 4
    (faster,) = re.findall(r"8 ranks, 64 MB: .* ([0-9.]+) times as fast$", "\n".join(lines), re.M)
    assert 3 < float(faster) < 3.95
    assert main([*command, "--link", "800gbit,2us", "--wire", "topk:0.001"]) == 0
    text = capsys.readouterr().out
    assert "topk(ratio=0.001)" in text
    assert main([*command, "--link", "4000gbit,2us", "--wire", "int8"]) == 0
    assert "encoding does not help" in capsys.readouterr().out
    assert main(["simulate", "broadcast", "--wire", "int8"]) == 2
    with pytest.raises(SystemExit):
        main([*command, "--wire", "int9"])
