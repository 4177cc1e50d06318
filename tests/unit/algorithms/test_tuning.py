"""Tuning: measuring the network, storing results, and rules before the cost model."""

from __future__ import annotations

import dataclasses
import json
import math

import mpi_case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import output_of, run
from mpi_case import say

from ringcomm import threads
from ringcomm._src.algorithms import tuning, tuning_cache
from ringcomm._src.config import rules
from ringcomm._src.config.config import NETWORK, Config
from ringcomm._src.core import _core
from ringcomm._src.platform.bootstrap import Topology
from ringcomm._src.platform.threads_link import ThreadsLink, ThreadsWorld

# ---- measuring -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.randoms())
def test_who_measures_and_rank_0_is_among_them(per_host, random):
    ranks = list(range(sum(per_host)))
    random.shuffle(ranks)
    hosts, at = [], 0
    for count in per_host:
        hosts.append(tuple(sorted(ranks[at : at + count])))
        at += count
    hosts.sort()
    topology = Topology(0, len(ranks), tuple(hosts), tuple("h" for _ in hosts))
    between, within = tuning.groups(topology)
    places = topology.host_of
    assert sorted(places[rank] for rank in between) == (list(range(len(hosts))) if len(hosts) > 1 else [])
    assert [places[a] for a, _ in within] == [host for host, ranks in enumerate(hosts) if len(ranks) > 1]
    assert all(a != b and places[a] == places[b] for a, b in within)
    assert (0 in between) == (len(hosts) > 1)
    assert any(0 in pair for pair in within) == (len(hosts[0]) > 1)


@pytest.mark.parametrize("size", range(2, 10))
def test_a_dissemination_makes_each_wait_for_all(size):
    rounds = (size - 1).bit_length()
    schedules = [tuning.dissemination(me, size, 2 * rounds) for me in range(size)]
    heard = [{me} for me in range(size)]  # for each rank, the ranks whose data has reached it
    for k in range(2 * rounds):
        before = [set(one) for one in heard]
        senders = []
        for me, schedule in enumerate(schedules):
            send, receive = schedule.rounds[k]
            assert (send.kind, receive.kind) == ("send", "receive") and (send.block, receive.block) == (0, 1)
            assert schedules[send.peer].rounds[k][1].peer == me != send.peer
            heard[send.peer] |= before[me]
            senders.append(receive.peer)
        assert sorted(senders) == list(range(size))  # in every round each rank sends one message and receives one
        assert all(len(one) == size for one in heard) == (k >= rounds - 1)


def measures(several_hosts):
    """Runs the measurement on ranks that the topology may assign to separate hosts."""
    import time

    from mpi4py import MPI

    from ringcomm._src.platform.mpi_link import MpiLink

    link = MpiLink(MPI.COMM_WORLD)
    if several_hosts:
        hosts = tuple((rank,) for rank in range(link.size))
        link.topology = Topology(link.rank, link.size, hosts, tuple(f"here{rank}" for rank in range(link.size)))
    begun = time.perf_counter()
    network = tuning.measure(link)
    say("measured", link.rank, round(time.perf_counter() - begun, 3), json.dumps(network))
    settled = tuning.add_network_parameters(link, Config(), None)
    again = tuning.add_network_parameters(link, settled, None)
    # otherwise the measurement was disturbed too much to be stored
    kept = several_hosts and settled.beta != tuning_cache.LEAST_BETA
    off = tuning.add_network_parameters(link, Config(tune="off"), tuning.cached_parameters(link, Config(tune="off")))
    say(
        "settled",
        link.rank,
        settled.alpha > 0 or settled.host_alpha > 0,
        again == settled,
        all(getattr(off, name) == 0 for name in NETWORK),
        (tuning.cached_parameters(link, Config()) is not None) == (kept and link.rank == 0),
    )
    link.free()


@pytest.mark.parametrize("size, several_hosts", [(2, False), (2, True), (3, True), (4, True)])
def test_ranks_measure_the_same_and_it_makes_sense(size, several_hosts, tmp_path):
    result = mpi_case.run(size, measures, several_hosts, variables={"XDG_CACHE_HOME": str(tmp_path)})
    said = [line.split(" ", 3) for line in result.lines("measured")]
    networks = [json.loads(line[3]) for line in said]
    assert len(networks) == size and all(one == networks[0] for one in networks) and set(networks[0]) == set(NETWORK)
    level = ("alpha", "beta") if several_hosts else ("host_alpha", "host_beta")
    for name in (*level, "gamma", "copy"):
        assert 1e-14 < networks[0][name] < 1
    assert networks[0][level[0]] > 1e-8
    assert 0 <= networks[0]["hidden"] <= networks[0]["alpha"] and 0 <= networks[0]["gap"] <= networks[0]["alpha"]
    # Only ranks of several hosts measure without a request; rank 0 loads the stored result.
    by_rank = sorted(line.split(" ")[1:] for line in result.lines("settled"))
    assert by_rank == [[str(rank), str(several_hosts), "True", "True", "True"] for rank in range(size)]


def test_tune_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = output_of(["-m", "ringcomm", "tune", "--json", tmp_path / "network.json"], tmp_path, ranks=2)
    assert "2 ranks on 1 host" in text and "host_alpha" in text
    (file,) = (tmp_path / "cache" / "ringcomm").iterdir()
    kept, written = json.loads(file.read_text()), json.loads((tmp_path / "network.json").read_text())
    assert kept["network"] == written["network"] and str(file) in text
    assert kept["key"]["hosts"] == 1 and kept["key"]["ranks_per_host"] == [2, 2]
    simulated = output_of(
        ["-m", "ringcomm", "simulate", "allreduce", "--network", tmp_path / "network.json", "--ranks", "4"], tmp_path
    )
    assert simulated.count("\n*") == 3
    alone = run(["-m", "ringcomm", "tune"], tmp_path)
    assert alone.returncode == 2 and "run 'ringrun -np RANKS ringcomm tune'" in alone.stderr


def uses_what_was_kept():
    import ringcomm

    comm = ringcomm.Communicator()
    parts = comm.split(0)
    say("config", comm.rank, comm.config.host_alpha, comm.config.gap, comm.config.beta, parts.config == comm.config)
    parts.close()
    comm.close()


def test_a_communicator_uses_what_was_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    variables = {"XDG_CACHE_HOME": str(tmp_path)}
    mpi_case.run(2, mpi_case.run_python, ["-m", "ringcomm", "tune"], str(tmp_path), variables=variables)
    (file,) = (tmp_path / "ringcomm").iterdir()
    document = json.loads(file.read_text())
    document["network"] |= {"host_alpha": 0.125, "gap": 0.25, "beta": 0.5}
    file.write_text(json.dumps(document))
    cases = {"0.125 0.25 0.5": {}, "0.0 0.0 0.0": {"RINGCOMM_TUNE": "off"}, "0.125 0.25 7.0": {"RINGCOMM_BETA": "7"}}
    for numbers, variables in cases.items():
        result = mpi_case.run(2, uses_what_was_kept, variables={"XDG_CACHE_HOME": str(tmp_path), **variables})
        assert sorted(result.lines("config")) == [f"config 0 {numbers} True", f"config 1 {numbers} True"]


# ---- storing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py.MPI", exc_type=(ImportError, RuntimeError))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Topology(0, 4, ((0, 1), (2, 3)), ("node17.rack3", "node18.rack3"))


def test_what_is_saved_is_loaded(kept):
    network = {name: 1e-6 * (index + 1) for index, name in enumerate(NETWORK)}
    assert tuning_cache.load(kept) is None
    file = tuning_cache.save(kept, network)
    assert file is not None and file.parent == tuning_cache.directory()
    assert tuning_cache.load(kept) == network
    other_node = dataclasses.replace(kept, host_names=("node5.rack9", "node1.rack1"))
    assert tuning_cache.load(other_node) == network  # a measurement is valid for every node of the cluster
    for other in (
        dataclasses.replace(kept, host_names=("login", "login")),
        Topology(0, 4, ((0, 1, 2), (3,)), kept.host_names),
        Topology(0, 4, ((0, 1, 2, 3),), ("node17.rack3",)),
    ):
        assert tuning_cache.load(other) is None


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"network": {"alpha": 1}}', "NaN", "negative"])
def test_what_is_damaged_is_not_used(kept, damage):
    network = dict.fromkeys(NETWORK, 1e-6)
    file = tuning_cache.save(kept, network)
    assert file is not None
    if damage in ("NaN", "negative"):
        damage = json.dumps({"network": network | {"gap": math.nan if damage == "NaN" else -1.0}})
    file.write_text(damage)
    assert tuning_cache.load(kept) is None


def test_what_was_disturbed_is_not_kept(kept):
    network = dict.fromkeys(NETWORK, 1e-6) | {"beta": tuning_cache.LEAST_BETA}
    assert tuning_cache.save(kept, network) is None and tuning_cache.load(kept) is None
    file = tuning_cache.save(kept, network | {"beta": 1e-10})
    assert file is not None
    file.write_text(json.dumps({"network": network}))
    assert tuning_cache.load(kept) is None


def test_no_place_to_keep_it_is_no_error(kept, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert tuning_cache.save(kept, dict.fromkeys(NETWORK, 1.0)) is None


def test_ranks_that_are_threads_measure_nothing():
    link = ThreadsLink(ThreadsWorld(1), 0)
    assert tuning.cached_parameters(link, Config()) is None
    assert tuning.add_network_parameters(link, Config(tune="on"), None) == Config(tune="on")


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_rules_are_read(tmp_path):
    file = tmp_path / "rules.json"
    given = [
        {"bytes": "64K-1M", "ranks": "4-", "algorithm": "ring", "segment": "256K"},
        {"collective": "alltoall", "bytes": "-4K", "ranks": 3, "algorithm": "bruck"},
        {"bytes": 4096, "algorithm": "shared"},
        {"collective": "allgather", "segment": 17},
    ]
    everything = (1 << 63) - 1
    expected = [
        _core.Rule("allreduce", 64 << 10, 1 << 20, 4, (1 << 31) - 1, "ring", 256 << 10),
        _core.Rule("alltoall", 0, 4 << 10, 3, 3, "bruck", 0),
        _core.Rule("allreduce", 4096, 4096, 0, (1 << 31) - 1, "shared", 0),
        _core.Rule("allgather", 0, everything, 0, (1 << 31) - 1, "", 17),
    ]
    for document in (given, {"rules": given}):
        file.write_text(json.dumps(document))
        assert rules.parse(rules.read(str(file))) == expected
    assert rules.parse("") == []


@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "Expecting"),
        ('{"rule": []}', "a list of rules"),
        ("[1]", "rule 1"),
        ('[{}, {"algoritm": "ring"}]', "rule 2 must be an object"),
        ('[{"algorithm": "rign"}]', "no allreduce algorithm 'rign'; known: .*ring"),
        ('[{"collective": "gather"}]', "unknown collective 'gather'"),
        ('[{"bytes": "4Q"}]', "rule 1: '4Q' is not a size"),
        (None, "No such file"),
    ],
)
def test_rules_that_make_no_sense_are_an_error_on_every_rank(text, why, tmp_path):
    file = tmp_path / "rules.json"
    if text is not None:
        file.write_text(text)
    config = Config.from_environment({"RINGCOMM_TUNING_FILE": str(file)})
    problems = []

    def program(comm):
        problems.append("ran")

    with pytest.raises(ValueError, match=f"RINGCOMM_TUNING_FILE={file}: .*{why}"):
        threads.run(2, program, config=config)
    assert not problems


@given(st.integers(1, 1 << 20), st.integers(2, 6))
def test_a_rule_decides_what_runs(count, size):
    text = json.dumps(
        [
            {"bytes": "-4K", "algorithm": "tree"},
            {"bytes": f"4097-{1 << 19}", "ranks": "2-3", "algorithm": "ring", "segment": "64K"},
            {"bytes": f"4097-{1 << 19}", "algorithm": "circulant"},
        ]
    )
    request = _core.Request(0, _core.DTYPES.index("uint8"), count=count)
    for shared in ("off", "on"):
        config = Config(tuning_file=text, shared_memory=shared)
        chosen = threads.run(size, lambda comm: comm._channel.choose(request), config=config)
        assert len(set(chosen)) == 1
        if count <= 4096:
            assert chosen[0] == "tree"
        elif count <= 1 << 19:
            assert chosen[0] == ("ring" if size <= 3 else "circulant")
        else:
            assert (chosen[0] == "shared") == (shared == "on")


def test_a_calls_own_algorithm_and_the_option_go_before_rules():
    config = Config(tuning_file=json.dumps([{"algorithm": "tree"}]), shared_memory="off")
    x = np.ones(5, np.float32)
    for one, asked in ((config, "ring"), (dataclasses.replace(config, algorithm="circulant"), None), (config, None)):
        _core.trace_enable(True)
        _core.trace_drain()
        try:
            threads.run(2, lambda comm, asked=asked: comm.allreduce(x, algorithm=asked), config=one)
            paths = {
                event.detail for event in _core.trace_drain().as_list() if event.category == "run" and event.bytes == 20
            }
        finally:
            _core.trace_enable(False)
        assert paths == {asked or one.algorithm or "tree"}


FILE_OF_A_TORUS = {
    "hosts": [f"h{i}" for i in range(16)],
    "links": [{"between": [f"h{i}", f"h{(i + 1) % 16}"]} for i in range(16)],
}


def test_a_topology_changes_the_choice(tmp_path):
    file = tmp_path / "torus.json"
    file.write_text(json.dumps(FILE_OF_A_TORUS))
    request = _core.Request(0, _core.DTYPES.index("uint8"), count=1 << 18)

    def program(comm):
        link, chosen = comm._link, []
        for text in ("", "torus:16", str(file)):
            config = Config.from_environment({"RINGCOMM_TOPOLOGY": text}).channel(range(16))
            args = link.ordered, range(comm.size), comm.rank, 0, link.tags, None, 0, config
            chosen.append(_core.Channel(*args).choose(request))
        return chosen

    for without, torus, graph in threads.run(16, program):
        assert not without.startswith("bine") and torus == graph == "bine_halving"


@pytest.mark.parametrize(
    "text, why",
    [
        ("tree:4", "no topology has this form; write fat-tree"),
        ("torus:0x4", "no possible number of hosts"),
        ("torus:65536x65536", "no possible number of hosts"),
        ("fat-tree:oversubscription=-1", "oversubscription must be above 0"),
        ("fat-tree:rack=inf", "cannot convert float infinity"),
        ("rails:four", "invalid literal"),
        ("rails:99999999999", "too large|overflow"),
        ("none.json", "No such file"),
        ("{tmp}/empty.json", "lacks, or does not define, 'hosts'"),
        ("{tmp}/list.json", "unsupported operand"),
        ("{tmp}/rate.json", "'fast' is not a rate"),
    ],
)
def test_topologies_that_make_no_sense_are_an_error_on_every_rank(text, why, tmp_path):
    for name, document in {
        "empty": {},
        "list": [],
        "rate": {"hosts": ["a", "b"], "links": [{"between": ["a", "b"], "rate": "fast"}]},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    text, ran, errors = text.format(tmp=tmp_path), [], []
    for config in (Config.from_environment({"RINGCOMM_TOPOLOGY": text}), Config(topology=text)):
        with pytest.raises(ValueError, match=f"RINGCOMM_TOPOLOGY={text}: .*({why})"):
            threads.run(2, lambda comm: ran.append(comm.rank), config=config)
        for _ in range(2):
            with pytest.raises(ValueError, match=why) as raised:
                config.channel(range(2))
            errors.append(str(raised.value))
    assert not ran and len(set(errors)) == 1


def test_a_bad_topology_of_rank_0_alone_is_the_same_error_on_every_rank(caplog):
    configs = [Config(topology="tree:4"), Config(), Config(topology="torus:2d")]
    errors = set()
    for rank, config in enumerate(configs):
        with pytest.raises(ValueError, match="RINGCOMM_TOPOLOGY=tree:4: no topology has this form") as raised:
            config.agreed(configs, rank).channel(range(3))
        errors.add(str(raised.value))
    assert len(errors) == 1 and not caplog.records
    assert [config.agreed(configs[::-1], 2).topology for config in configs] == ["torus:2d"] * 3


def test_options_that_name_files_are_texts_and_can_be_read_again(tmp_path):
    (tmp_path / "torus.json").write_text(json.dumps(FILE_OF_A_TORUS))
    (tmp_path / "rules.json").write_text('[{"algorithm": "tree"}]')
    config = Config(topology=str(tmp_path / "torus.json"), tuning_file=str(tmp_path / "rules.json"))
    assert dataclasses.replace(config) == config
    assert config.channel(range(16)).topology.hosts == 16 and config.channel(range(2)).rules[0].algorithm == "tree"
    for name in ("topology", "tuning_file"):
        with pytest.raises(ValueError, match=f"option {name} must be a text, not 5"):
            Config(**{name: 5})


def test_a_topology_with_too_few_hosts_is_an_error():
    with pytest.raises(ValueError, match=r"RINGCOMM_TOPOLOGY: torus:2x2 has 4 hosts, but the ranks need 5"):
        Config(topology="torus:2x2").channel(range(5))
