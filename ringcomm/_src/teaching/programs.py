"""Exercises with a number, a choice, or a function as answer. Functions run on test data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ringcomm import threads
from ringcomm._src.teaching.predict import predict
from ringcomm._src.teaching.schedules import check_deadlock

RANKS = 4
ALPHA, BETA = 20e-6, 1e-9  # the link in the exercises about costs


def near(answer: Any, expected: float, hint: str, tolerance: float = 0.01) -> str:
    """Returns "" if the answer is within the relative tolerance, else the hint."""
    if not isinstance(answer, (int, float, np.number)):
        return f"the answer must be a number, not {type(answer).__name__}"
    return "" if math.isclose(answer, expected, rel_tol=tolerance) else hint


def ring_bytes(answer: Any) -> str:
    return near(answer, 7e6, "each of the 2(p-1) messages has one block of S/p bytes; S is 4 bytes times 1,000,000")


def crossover(answer: Any) -> str:
    size, levels, volume = 64, 6, 2 * 63 / 64
    expected = (2 * (size - 1) - levels) * ALPHA / (BETA * (levels - volume))
    return near(answer, expected, "solve 6(alpha + S beta) = 126 alpha + 2(63/64) S beta for S")


def choose_64(answer: Any) -> str:
    for nbytes in (1 << 10, 64 << 20):
        times = predict(64, nbytes, alpha=ALPHA, beta=BETA)
        name = answer.get(nbytes) if isinstance(answer, dict) else None
        if name not in times:
            return f"the answer must be a dict that maps {nbytes} to one of {', '.join(sorted(times))}"
        if times[name] > 1.1 * min(times.values()):
            return f"for {nbytes} bytes {name} takes {times[name] / min(times.values()):.2g} times the shortest time"
    return ""


def same_start(answer: Any) -> str:
    weights = [np.random.default_rng(rank).standard_normal(5) for rank in range(RANKS)]
    results = threads.run(RANKS, lambda comm: np.asarray(answer(comm, weights[comm.rank].copy())))
    for rank, result in enumerate(results):
        if result.shape != (5,) or not np.array_equal(result, weights[0]):
            return f"rank {rank} does not return the weights of rank 0"
    return ""


def unequal_batches(answer: Any) -> str:
    rng = np.random.default_rng(0)
    for counts in ((3, 3, 3, 3), (5, 1, 2, 4), (4, 0, 1, 0)):
        examples = [rng.standard_normal((count, 3)) for count in counts]
        results = threads.run(
            RANKS,
            lambda comm, examples=examples: answer(comm, examples[comm.rank].sum(axis=0), len(examples[comm.rank])),
        )
        expected = np.concatenate(examples).mean(axis=0)
        for rank, result in enumerate(results):
            if not np.allclose(result, expected):
                return f"with {counts} examples on the ranks, rank {rank} does not return the mean over all examples"
    return ""


def bit_equality(answer: Any) -> str:
    if len(answer) != 3:
        return "the answer must be three numbers"
    with np.errstate(over="ignore", invalid="ignore"):
        a, b, c = np.asarray(answer, np.float32)
        left, right = (a + b) + c, a + (b + c)
    if not np.isfinite([left, right]).all():
        return "the numbers and their sums must be finite"
    return "" if left != right else "in float32, (a + b) + c and a + (b + c) are equal for these numbers"


def straggler(answer: Any) -> str:
    synchronous, asynchronous = answer
    return near(synchronous, 100, "synchronous: all four ranks make one step in each 40 ms") or near(
        asynchronous, 325, "asynchronous: three ranks make 100 steps in a second, and one makes 25"
    )


def ssp(answer: Any) -> str:
    rng = np.random.default_rng(1)
    for staleness in range(4):
        for clocks in rng.integers(0, 5, (20, RANKS)).tolist():
            expected = [rank for rank, clock in enumerate(clocks) if clock - min(clocks) <= staleness]
            if sorted(answer(list(clocks), staleness)) != expected:
                return f"with steps {clocks} and staleness {staleness}, the ranks {expected} may start a step"
    return ""


def residual(answer: Any) -> str:
    rng = np.random.default_rng(2)
    left = np.zeros(8)
    for _ in range(5):
        gradient = rng.standard_normal(8)
        total = gradient + left
        sent, new = answer(gradient.copy(), left.copy(), 2)
        largest = set(np.argsort(-abs(total))[:2].tolist())
        if set(np.flatnonzero(sent).tolist()) != largest:
            return "the two elements of gradient + residual with the largest magnitude must be sent"
        if not np.allclose(np.add(sent, new), total):
            return "sent + new residual must equal gradient + residual: no part of a gradient may be lost"
        left = np.asarray(new)
    return ""


def bubble(answer: Any) -> str:
    for stages, microbatches in ((1, 5), (4, 1), (4, 8), (8, 32)):
        expected = (stages - 1) / (microbatches + stages - 1)
        if not math.isclose(answer(stages, microbatches), expected, abs_tol=1e-9):
            return f"with {stages} stages and {microbatches} micro-batches, each rank idles {expected:.4g} of the time"
    return ""


def tensor_parallel(answer: Any) -> str:
    rng = np.random.default_rng(3)
    x, first, second = rng.standard_normal((5, 6)), rng.standard_normal((6, 8)), rng.standard_normal((8, 3))
    columns, rows = np.split(first, RANKS, axis=1), np.split(second, RANKS, axis=0)
    results = threads.run(RANKS, lambda comm: answer(comm, x, columns[comm.rank], rows[comm.rank]))
    expected = np.maximum(x @ first, 0) @ second
    for rank, result in enumerate(results):
        if np.shape(result) != expected.shape or not np.allclose(result, expected):
            return f"rank {rank} does not return max(x @ first, 0) @ second"
    return ""


PROGRAMS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "deadlock": (
        "Write a schedule that deadlocks on 4 ranks, although every send has its receive.",
        check_deadlock,
    ),
    "ring_bytes": (
        "How many bytes does a rank send in a ring all-reduce of 1,000,000 float32 on 8 ranks?",
        ring_bytes,
    ),
    "crossover": (
        "alpha = 20e-6 s, beta = 1e-9 s/B, 64 ranks: for which size S in bytes does the ring take as long as "
        "recursive doubling? Neglect gamma.",
        crossover,
    ),
    "choose_64": (
        "alpha = 20e-6 s, beta = 1e-9 s/B, 64 ranks: a dict of the fastest algorithm for 1 KiB and for 64 MiB, "
        '{1 << 10: "...", 64 << 20: "..."}.',
        choose_64,
    ),
    "same_start": (
        "Each rank has made random weights. Write f(comm, weights), which returns the weights that rank 0 has made.",
        same_start,
    ),
    "unequal_batches": (
        "Write f(comm, gradient_sum, count): the mean gradient over the examples of all ranks. count may be 0.",
        unequal_batches,
    ),
    "bit_equality": (
        "Give three float32 numbers whose sum depends on the order of the additions.",
        bit_equality,
    ),
    "straggler": (
        "A step takes 10 ms, but 40 ms on one of four ranks. Give the gradients per second of all ranks together: "
        "(synchronous, asynchronous).",
        straggler,
    ),
    "ssp": (
        "Write f(steps, s): the ranks that may start a step under stale synchronous parallel. steps[r] is the number "
        "of steps of rank r; a rank may be at most s steps ahead of the slowest when it starts one.",
        ssp,
    ),
    "residual": (
        "Write f(gradient, residual, k), which returns (sent, new residual): top-k with error feedback.",
        residual,
    ),
    "bubble": (
        "Write f(stages, microbatches): the fraction of time in which a rank idles in a pipeline of equal stages.",
        bubble,
    ),
    "tensor_parallel": (
        "Write f(comm, x, columns, rows): max(x @ first, 0) @ second, where a rank has its columns of first and its "
        "rows of second.",
        tensor_parallel,
    ),
}
