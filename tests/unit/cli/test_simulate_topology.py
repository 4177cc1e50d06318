"""`ringcomm simulate --topology`: contention, placement, files of topologies, pictures, errors."""

from __future__ import annotations

import argparse
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.cli import main, simulate
from ringcomm._src.cli.topologies import hosts_of_ranks, parse_topology
from ringcomm._src.config.config import NETWORK
from ringcomm._src.config.topologies import even_shape
from ringcomm._src.core import _core

LINKS = _core.Network(**(NETWORK | {"alpha": 5e-5, "beta": 8e-8}))
TREE = "fat-tree:oversubscription=4"
CHOICE = 1.04  # the cheapest cut is within 3 % of the best one


def times(topology, ranks=16, size=1 << 20, per_host=1, collective="allreduce", placement="block"):
    parsed = parse_topology(topology) if topology else None
    rows = simulate.simulate(collective, [ranks], [size], per_host, LINKS, topology=parsed, placement=placement)
    return {row.algorithm: row.time for row in rows}


@given(st.sampled_from(_core.COLLECTIVES), st.integers(1, 40), st.integers(1, 1 << 26))
def test_a_full_fat_tree_costs_what_separate_links_cost(collective, ranks, size):
    plain, full = (
        times(text, ranks, size, collective=collective) for text in (None, "fat-tree:oversubscription=1,rack=4")
    )
    assert full.keys() >= plain.keys()  # also algorithms that are never chosen
    for name, seconds in plain.items():
        assert full[name] == pytest.approx(seconds, rel=0.1)


@given(st.sampled_from([8, 12, 16, 32]), st.integers(1, 1 << 26), st.floats(1, 8), st.floats(1, 4))
def test_less_capacity_is_never_faster_and_a_rack_receives_a_buffer(ranks, size, over, more):
    wide, narrow = (times(f"fat-tree:oversubscription={o},rack=4", ranks, size) for o in (over, over * more))
    for name, seconds in wide.items():
        assert narrow[name] >= seconds / CHOICE
        assert seconds >= size * LINKS.beta * over / 4


@given(st.integers(1, 500), st.integers(1, 3))
def test_even_shapes(hosts, dimensions):
    shape = even_shape(hosts, dimensions)
    assert len(shape) == dimensions and math.prod(shape) == hosts and shape == sorted(shape, reverse=True)


def test_shape_of_powers_of_two():
    assert even_shape(64, 2) == [8, 8] and even_shape(64, 3) == [4, 4, 4] and even_shape(128, 2) == [16, 8]


def test_neighbours_on_a_torus_do_not_share_links_and_distant_ranks_do():
    ring, torus = times(None, 64, 1 << 24), times("torus:8x8", 64, 1 << 24)
    assert torus["ring"] == pytest.approx(ring["ring"], rel=0.01)
    assert torus["butterfly_halving"] > 1.3 * ring["butterfly_halving"]


@pytest.mark.parametrize("hop", [0.0, 1e-5, 1e-2])
def test_messages_wait_for_hops_or_for_each_other_but_not_for_both(hop):
    """In the second round of doubling on 8 hosts in a ring, two messages of 2 hops share a link."""
    menu = _core.Menu("allreduce", 8, None, LINKS, _core.Topology.torus([8], hop))
    (option,) = menu.options("butterfly_doubling", 1000, segment=1000, window=1)
    data, latency = 1000 * LINKS.beta, LINKS.alpha + 1000 * LINKS.gamma
    waits = 0, max(data, hop), max(data, 3 * hop)  # beside the message itself: 1, 2 and 2 messages share a link
    assert option.price.seconds == pytest.approx(sum(latency + data + wait for wait in waits), rel=1e-6)


def test_rails_multiply_a_hosts_rate():
    one, four = (times(f"rails:{rails}", 64, 1 << 24, per_host=8) for rails in (1, 4))
    assert one["two_level:butterfly_halving"] == pytest.approx(4 * four["two_level:butterfly_halving"], rel=0.1)
    assert times("rails:4,spine=4", 64, 1 << 24, 8)["round_robin"] > four["round_robin"]


def test_placement_decides_which_messages_cross_racks(tmp_path):
    assert hosts_of_ranks("block", 6, 2) == [0, 0, 1, 1, 2, 2]
    assert hosts_of_ranks("round-robin", 6, 2) == [0, 1, 2, 0, 1, 2]
    file = tmp_path / "hosts"
    file.write_text("0 4 1 5\n2 6 3 7\n")
    topology = "fat-tree:oversubscription=4,rack=4"
    block, mixed = times(topology, 8), times(topology, 8, placement=str(file))
    assert mixed["ring"] > 2 * block["ring"]  # every step crosses racks


def graph(tmp_path, **changes):
    hosts = [f"h{i}" for i in range(8)]
    links = [{"between": [host, f"s{i // 4}"], "kind": "host"} for i, host in enumerate(hosts)]
    links += [{"between": ["s0", "s1"], "rate": "100mbit", "kind": "trunk"}]
    file = tmp_path / "racks.json"
    file.write_text(json.dumps({"hosts": hosts, "switches": ["s0", "s1"], "links": links} | changes))
    return str(file)


def test_a_file_can_be_a_fat_tree(tmp_path):
    file, tree = times(graph(tmp_path), 8), times("fat-tree:oversubscription=4,rack=4", 8)
    for name, seconds in file.items():
        assert seconds == pytest.approx(tree[name], rel=1e-6)


FORMS = "fat-tree:4 fat-tree:oversubscription=0 fat-tree:racks=4 torus torus:8xx8 torus:0x2,hop=3 rails mesh:8 no.json"


@pytest.mark.parametrize("text", FORMS.split())
def test_bad_topologies_name_the_forms(text):
    with pytest.raises(argparse.ArgumentTypeError, match="write fat-tree:oversubscription=4"):
        parse_topology(text)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"links": []}, "no route from host"),
        ({"links": [{"between": ["h0", "x"]}]}, "'x'"),
        ({"links": [{"between": ["h0", "s0"], "rate": "fast"}]}, "not a rate"),
    ],
)
def test_bad_files(tmp_path, changes, message):
    with pytest.raises((argparse.ArgumentTypeError, ValueError), match=message):
        times(graph(tmp_path, **changes), 8)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--topology torus:2x2 --ranks 8", "use fewer ranks"),
        ("--placement nowhere --ranks 8", "nowhere"),
        ("--plot x.foo", "does not end in a known format"),
        ("--heatmap missing/x.png", "create it first"),
    ],
)
def test_one_error_before_any_work(arguments, message, capsys):
    assert main(["simulate", "allreduce", "--sizes", "1M", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1


def test_table_json_and_heat_map(tmp_path, capsys):
    file, picture = tmp_path / "rows.json", tmp_path / "map.png"
    command = [
        "simulate",
        "allreduce",
        "--ranks",
        "8-256",
        "--sizes",
        "4K-4M/4",
        "--topology",
        "fat-tree:oversubscription=4",
    ]
    assert main([*command, "--json", str(file), "--heatmap", str(picture)]) == 0
    text, document = capsys.readouterr().out, json.loads(file.read_text())
    assert picture.stat().st_size > 10000
    assert "most time" in text and "rack uplink" in text and "placement block" in text
    assert document["topology"] == TREE and document["placement"] == "block"
    assert {row["limit"] for row in document["rows"]} <= {"host link", "rack uplink", "inside hosts", "latency"}


def test_many_ranks_take_moments_and_what_has_too_many_messages_is_named(capsys):
    command = ["simulate", "alltoall", "--ranks", "64K", "--sizes", "64K", "--topology", TREE]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "direct" in out and "too many messages: pairwise" in out
    assert {"ring", "tree", "circulant", "round_robin", "all_to_all"} <= times(TREE, 1 << 16).keys()
