"""Tests the stand-in's streams and events: it keeps the documented order, and no other."""

import ctypes

import pytest
from standin.cases import SEEDS, Bench, across, outcomes
from standin.driver import (
    LEGACY,
    NOT_READY,
    PER_THREAD,
)


def test_what_an_event_orders_is_in_order_and_nothing_else(driver):
    assert set(outcomes(driver, across)) == {"n"}
    unordered = outcomes(driver, lambda bench: across(bench, wait=False))
    assert 10 < unordered.count("o") < 35  # both orders occur under many seeds
    assert outcomes(driver, lambda bench: across(bench, wait=False)) == unordered  # the seed determines the order


def test_an_overtaken_reader_is_noticed(driver):
    """Without a wait, a stream may overwrite data before another stream has read it."""

    def trial(bench: Bench) -> str:
        bench.copy(bench.b)
        bench.fill()
        driver.cuStreamSynchronize(bench.a)
        return bench.copied(bench.b)

    assert set(outcomes(driver, trial)) == {"o", "n"}


def test_a_stream_is_in_order(driver):
    def trial(bench: Bench) -> str:
        bench.fill("1")
        bench.fill("2")
        bench.copy(bench.a)
        return bench.copied(bench.a)

    assert set(outcomes(driver, trial)) == {"2"}


def test_ignored_waits_are_noticed(driver):
    for text in ("cuStreamWaitEvent:*", "cuStreamWaitEvent@1", "cuEventRecord:*"):
        driver.ignore(text)
        assert "o" in outcomes(driver, across), text
    driver.ignore("cuStreamWaitEvent:2")
    found = outcomes(driver, across, seeds=[seed for s in SEEDS for seed in (s, s)])
    assert "o" not in found[0] + found[2:]
    driver.ignore("cuStreamWaitEvent:1")
    slow = next(s for s in SEEDS if outcomes(driver, lambda b: across(b, wait=False), seeds=[s]) == "o")
    driver.ignore("cuStreamWaitEvent:2")
    assert outcomes(driver, across, seeds=[slow] * 3) == "non"


def test_waiting_takes_the_latest_record_of_that_moment(driver):
    def before_any(bench: Bench) -> str:
        bench.wait()  # no record to wait for
        bench.fill()
        bench.record()
        bench.copy(bench.b)
        return bench.copied(bench.b)

    def early(bench: Bench) -> str:
        bench.record()
        bench.wait()
        bench.fill()
        bench.record()  # too late for the wait
        bench.copy(bench.b)
        return bench.copied(bench.b)

    def again(bench: Bench) -> str:
        bench.record()
        bench.fill()
        bench.record()
        return across(bench, events=False)

    assert "o" in outcomes(driver, before_any)
    assert "o" in outcomes(driver, early)
    assert set(outcomes(driver, again)) == {"n"}


@pytest.mark.parametrize("default", [0, LEGACY])
def test_the_legacy_stream_and_blocking_streams_wait_for_each_other(driver, default):
    def into(bench: Bench) -> str:
        bench.fill()
        bench.copy(default)
        return bench.copied(default)

    def out_of(bench: Bench) -> str:
        driver.cuMemsetD8Async(bench.x, ord("n"), bench.size, default)
        bench.copy(bench.a)
        return bench.copied(bench.a)

    for trial in (into, out_of):
        assert set(outcomes(driver, trial, flags=0)) == {"n"}
        assert "o" in outcomes(driver, trial, flags=1)


def test_the_stream_of_a_thread_is_a_blocking_one(driver):
    def trial(bench: Bench) -> str:
        driver.cuMemsetD8Async(bench.x, ord("n"), bench.size, PER_THREAD)
        bench.copy(LEGACY)
        return bench.copied(LEGACY)

    assert set(outcomes(driver, trial)) == {"n"}


def test_polls_say_not_ready_and_then_ready(driver):
    answers = set()
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            bench.fill()
            bench.record()
            for name, what in (("cuEventQuery", bench.event), ("cuStreamQuery", bench.a)):
                code = NOT_READY
                while code == NOT_READY:  # ends, because polling releases an operation long before its delay
                    code = driver.code(name, what)
                    answers.add(code)
                assert code == 0
    assert answers == {0, NOT_READY}


def test_held_operations_run_though_nobody_waits(driver):
    with driver.seeded(3, delay_us=2000), Bench(driver) as bench:
        bench.fill()
        bench.copy(bench.a)
        while driver.peek(bench.y, 1) != b"n":
            pass


def test_times(driver):
    first, last = driver.event(0), driver.event(0)
    milliseconds = ctypes.c_float(-1)
    with Bench(driver) as bench:
        assert driver.code("cuEventElapsedTime", ctypes.byref(milliseconds), first, last) == 400  # not recorded
        driver.cuEventRecord(first, bench.a)
        bench.fill()
        driver.cuEventRecord(last, bench.a)
        driver.cuEventSynchronize(last)
        driver.cuEventElapsedTime(ctypes.byref(milliseconds), first, last)
        assert milliseconds.value >= 0
        assert driver.code("cuEventElapsedTime", ctypes.byref(milliseconds), first, bench.event) == 400
    for event in (first, last):
        driver.cuEventDestroy_v2(event)


def test_a_destroyed_stream_finishes_what_it_holds(driver):
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            stream = driver.stream()
            driver.cuMemsetD8Async(bench.y, ord("n"), 100, stream)
            driver.cuStreamDestroy_v2(stream)
            driver.cuCtxSynchronize()
            assert driver.peek(bench.y, 1) == b"n"


def test_host_functions_run_in_order_and_may_not_call(driver):
    seen = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    note = kind(lambda _: seen.append((driver.peek(bench.x, 1), driver.code("cuCtxSynchronize"))))
    with driver.seeded(1), Bench(driver) as bench:
        bench.fill()
        driver.cuLaunchHostFunc(bench.a, note, None)
        driver.cuStreamSynchronize(bench.a)
    assert seen == [(b"n", 800)]


def test_freeing_in_a_streams_order(driver):
    for seed in SEEDS:
        with driver.seeded(seed), Bench(driver) as bench:
            address = driver.made("cuMemAllocAsync", 100, bench.a)
            driver.cuMemsetD8Async(address, ord("n"), 100, bench.a)
            driver.cuMemcpyDtoDAsync_v2(bench.y, address, 100, bench.a)
            driver.cuMemFreeAsync(address, bench.a)
            assert bench.copied(bench.a) == "n"
