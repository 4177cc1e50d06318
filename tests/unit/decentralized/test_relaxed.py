"""Relaxed methods for NumPy arrays, and the parts that they consist of."""

import math
import random
import time

import mpi_case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.decentralized.every import Every
from ringcomm._src.decentralized.replicas import ArrayReplica, cut
from ringcomm._src.decentralized.topology import groups, prove


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.data())
def test_cut(sizes: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(sizes)))
    made = cut(sizes, parts)
    assert len(made) == parts and all(made)
    assert [item for part in made for item in part] == list(range(len(sizes)))
    most = max(sum(sizes[item] for item in part) for part in made)
    assert most <= sum(sizes) / parts + 2 * max(sizes)


def test_cut_refuses() -> None:
    with pytest.raises(ValueError, match="fragments=3"):
        cut([1, 2], 3)


@given(st.integers(1, 50), st.integers(1, 8))
def test_every_part_of_a_period_has_one_round(period: int, parts: int) -> None:
    if parts > period:
        with pytest.raises(ValueError, match="fragments"):
            Every(period, parts)
        return
    every, begun = Every(period, parts), []
    for step in range(1, 3 * period + 1):
        if every.due(step):
            every.count()
            begun.append(step)
    assert len(begun) == 3 * parts
    assert [step for step in begun if step % period == 0] == [period, 2 * period, 3 * period]


@pytest.mark.parametrize("period", [0, -1, True, 1.5, "", "8", "0ms", "5 h", None])
def test_every_refuses(period: object) -> None:
    with pytest.raises(ValueError, match="every="):
        Every(period)  # type: ignore[arg-type]


def test_every_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ringcomm._src.decentralized.every.time.monotonic", lambda: now[0])
    every = Every("30ms", parts=2)
    now[0] += 0.0149
    assert not every.due(100)
    now[0] += 0.0002
    assert every.due(1)
    every.count()
    assert not every.due(200)


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_a_replica_gives_what_it_took(seed: int, fragments: int) -> None:
    draw = np.random.default_rng(seed)
    dtypes = [np.float32, np.float16, np.float64, np.complex64]
    arrays = [
        (draw.standard_normal((3, 4)) * 4).astype(dtype).T[::1] for dtype in draw.choice(dtypes, fragments + 2).tolist()
    ]
    replica = ArrayReplica(arrays, fragments=fragments)
    before = [array.copy() for array in arrays]
    flats = [replica.flat_copy(number) for number in range(fragments)]
    for array in arrays:
        array[...] = 0
    for number, flat in enumerate(flats):
        replica.write(number, flat)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


@pytest.mark.parametrize("group", [None, 2, 3])
def test_groups_take_means_crosswise(group: int | None) -> None:
    graph = groups(group)
    for size in range(1, 40):
        base = group or max(2, math.ceil(math.sqrt(size)))
        matrices = [graph.matrix(size, number) for number in range(graph.period(size))]
        proof = prove(matrices)
        assert all(np.allclose(one.sum(axis=axis), 1) for one in matrices for axis in (0, 1))
        assert proof.gap > 1e-9
        assert proof.exact or base ** len(matrices) != size
        assert all((one > 0).sum(axis=1).max() <= base for one in matrices)
        assert all(np.allclose(one @ one, one) for one in matrices)  # all members of a group get its mean


def numpy_forms() -> None:
    import relaxed_reference as reference

    import ringcomm

    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    start = np.linspace(-1, 1, 12)

    def gradient(rank: int, step: int, x: np.ndarray) -> np.ndarray:
        return (x - np.random.default_rng(100 * rank + step).standard_normal(12)) / 2

    def run(method, steps, **options):
        flat = start + rank
        parts = [flat[:5], flat[5:].reshape(7, 1)]
        statistics = np.full(3, float(rank))
        with method(parts, statistics=[statistics], **options) as exchange:
            for step in range(steps):
                time.sleep(random.random() * 0.002)
                flat -= 0.1 * gradient(rank, step, flat)
                exchange.step()
        return flat, exchange

    steps = [7 + 4 * one for one in range(size)]
    x, exchange = run(ringcomm.PeriodicAverager, steps[rank], every=3)
    expected = reference.local_sgd(start, gradient, steps, every=3, lr=0.1)[1]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    assert exchange.updates == sum(steps)
    assert exchange.stats()["exchanges"] > 2
    x, _ = run(ringcomm.OuterStep, 10, every=4, fragments=2, delay=1)
    cuts = [slice(0, 5), slice(5, 12)]
    how = {"lr": 0.1, "outer_lr": 0.7, "outer_momentum": 0.9, "nesterov": True, "delay": 1}
    expected = reference.diloco(start, gradient, size, 10, every=4, cuts=cuts, **how)[1]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    x, _ = run(ringcomm.ElasticAverager, 11, every=2)
    expected = reference.easgd(start, gradient, size, 11, every=2, lr=0.1, beta=0.9, overlap=True)[1]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    x, _ = run(ringcomm.GossipAverager, 6, topology="ring", resync=4)
    weights = [ringcomm._src.decentralized.topology.topology("ring").matrix(size)]
    expected = reference.gossip(start, gradient, weights, 6, every=1, lr=0.1, resync=4).mean(axis=0)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    for wrong in ([1.0], np.arange(3)):
        try:
            ringcomm.PeriodicAverager([wrong])
        except ValueError as error:
            assert "writeable NumPy arrays" in str(error)
        else:
            raise AssertionError(wrong)
    mpi_case.say("done")


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_numpy_forms(ranks: int) -> None:
    assert len(mpi_case.run(ranks, numpy_forms).lines("done")) == max(ranks, 1)


def one_dies(how: str) -> None:
    import os
    import signal

    import ringcomm

    ringcomm.init()
    x = np.zeros(1000)
    with ringcomm.PeriodicAverager([x], every=2) as exchange:
        for step in range(1000):
            if step == 5 and ringcomm.rank() == 1:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ArithmeticError("rank 1 has had enough")
            exchange.step()


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_rank_that_ends_ends_the_others(how: str) -> None:
    result = mpi_case.start(3, one_dies, how, limit=60)
    assert result.status != 0
    assert not result.left_behind


def one_leaves_a_store(how: str) -> None:
    """Lets rank 1 leave a parameter store whose other ranks wait for it in every step."""
    import os
    import signal

    import ringcomm

    ringcomm.init()
    w = np.zeros(50_000, np.float32)
    store = ringcomm.ParameterStore({"w": w}, ringcomm.updates.SGD(1.0), ringcomm.Sync())
    for step in range(1000):
        if step == 5 and ringcomm.rank() == 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raise":
                raise ArithmeticError("rank 1 has had enough")
            break
        if step == 20:
            break
        store.push_pull({"w": -np.ones_like(w)})
    if how == "finish" or ringcomm.rank() != 1:
        try:
            store.finish()
            mpi_case.say("finished", w.min(), w.max())
        except ringcomm.RankLeftError as error:
            mpi_case.say("left", error.ranks)


@pytest.mark.parametrize("how", ["kill", "raise", "leave", "finish"])
def test_a_rank_that_leaves_a_store_between_hosts(how: str) -> None:
    """A rank's shards are lost when it leaves, unless it calls finish, which waits."""
    result = mpi_case.start(3, one_leaves_a_store, how, limit=60, variables={"RINGCOMM_SHARED_MEMORY": "off"})
    assert not result.left_behind
    if how == "finish":
        assert result.status == 0 and result.lines("finished") == ["finished 20.0 20.0"] * 3
    else:
        assert result.status != 0 or how == "leave"
        assert not result.lines("finished")
    if how in ("kill", "raise"):
        assert "died" in result.text or "rank 1 has had enough" in result.text
