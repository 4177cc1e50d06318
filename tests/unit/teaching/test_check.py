"""The checker accepts the solutions, and refuses wrong answers with the reason."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm.algorithms import receive, reduce, send
from ringcomm.teaching import check, draw, exercises, predict

ROOT = Path(__file__).resolve().parents[3]
SOLUTIONS = runpy.run_path(str(ROOT / "examples" / "teaching" / "solutions" / "solutions.py"))["SOLUTIONS"]


def wrong_ring(rank, size):
    """Reduces into the block that the rank has just sent."""
    right, left = (rank + 1) % size, (rank - 1) % size
    there = [[send(right, (rank - i) % size), reduce(left, (rank - i) % size)] for i in range(size - 1)]
    return there + SOLUTIONS["ring"](rank, size)[size - 1 :]


def unpaired(rank, size):
    return [[receive((rank - 1) % size, 0)]]


WRONG = [
    ("ring", wrong_ring, "does not compute allreduce"),
    ("ring", SOLUTIONS["two_rounds"], "only to its neighbours"),
    ("ring", 3, "must be a function"),
    ("ring", lambda rank, size: [[1]], "AttributeError"),
    ("butterfly", SOLUTIONS["halving"], "2 rounds; at most 1"),
    ("halving", SOLUTIONS["butterfly"], "sends 2 S; at most 1.5 S"),
    ("fold", SOLUTIONS["butterfly"], "on 3 ranks"),
    ("two_rounds", SOLUTIONS["ring"], "at most 2"),
    ("tree_root_3", SOLUTIONS["butterfly"], "a tree sends"),
    ("tree_root_3", lambda rank, size: SOLUTIONS["tree_root_3"]((rank + 3) % size, size), "on 4 ranks"),
    ("deadlock", SOLUTIONS["butterfly"], "has no deadlock"),
    ("deadlock", unpaired, "needs its receive"),
    ("deadlock", lambda rank, size: [[send(rank ^ 1, 0), receive(rank ^ 1, 0)]], "reports no deadlock"),
    ("ring_bytes", 8e6, "2(p-1) messages"),
    ("ring_bytes", "many", "must be a number"),
    ("crossover", 1000, "solve"),
    ("choose_64", {1 << 10: "ring", 64 << 20: "ring"}, "ring takes"),
    ("choose_64", {1 << 10: "tree"}, "times the shortest"),
    ("choose_64", "ring", "must be a dict"),
    ("same_start", lambda comm, weights: weights, "rank 1"),
    ("unequal_batches", lambda comm, total, count: comm.allreduce(total / max(count, 1)) / comm.size, "(5, 1, 2, 4)"),
    ("bit_equality", (1.0, 2.0, 3.0), "are equal"),
    ("bit_equality", (1e39, 1.0, 1.0), "finite"),
    ("bit_equality", (1.0,), "three numbers"),
    ("straggler", (100, 400), "one makes 25"),
    ("straggler", (325, 325), "40 ms"),
    ("ssp", lambda steps, s: list(range(len(steps))), "may start"),
    ("residual", lambda g, r, k: (g + r, 0 * r), "largest magnitude"),
    ("residual", lambda g, r, k: (SOLUTIONS["residual"](g, r, k)[0], 0 * r), "no part"),
    ("bubble", lambda p, m: (p - 1) / m, "idles"),
    ("tensor_parallel", lambda comm, x, c, r: np.maximum(x @ c, 0) @ r, "rank 0"),
]


def test_every_exercise_has_a_solution() -> None:
    assert list(SOLUTIONS) and set(SOLUTIONS) == set(exercises())


@pytest.mark.parametrize("name", SOLUTIONS)
def test_solutions_are_correct(name: str) -> None:
    verdict = check(name, SOLUTIONS[name])
    assert verdict, verdict


@pytest.mark.parametrize("name, answer, why", WRONG)
def test_wrong_answers_are_refused_with_the_reason(name: str, answer: object, why: str) -> None:
    verdict = check(name, answer)
    assert not verdict
    assert why in verdict.text, verdict


def test_every_exercise_has_a_wrong_answer() -> None:
    assert {name for name, _, _ in WRONG} == set(exercises())


def test_unknown_exercises_are_refused() -> None:
    with pytest.raises(ValueError, match="no exercise 'rong'"):
        check("rong", 1)


def test_drawings() -> None:
    pytest.importorskip("matplotlib")
    verdict = check("ring", SOLUTIONS["ring"], drawn=True)
    assert verdict.drawing is not None
    assert "<svg" in verdict.drawing.svg and "<svg" in verdict._repr_html_()
    assert "<svg" in draw("tree", 3)._repr_svg_()
    with pytest.raises(ValueError, match="does not compute"):
        draw(unpaired)


@given(st.integers(2, 9), st.integers(1, 1 << 20), st.floats(1e-7, 1e-3), st.floats(1e-11, 1e-6))
def test_predictions_follow_the_formulas(size: int, nbytes: int, alpha: float, beta: float) -> None:
    nbytes *= 2520  # all block sizes are equal
    times = predict(size, nbytes, alpha=alpha, beta=beta)
    levels, halved = (size - 1).bit_length(), 2 * (size - 1) / size
    assert times["ring"] == pytest.approx(2 * (size - 1) * alpha + halved * nbytes * beta)
    assert times["tree"] == pytest.approx(2 * levels * (alpha + nbytes * beta))
    assert times["all_to_all"] == pytest.approx((size - 1) * (alpha + nbytes * beta))
    assert list(times.values()) == sorted(times.values())
    assert predict(size, nbytes, alpha=alpha, beta=beta, algorithm="ring") == {"ring": times["ring"]}


def test_a_reduce_of_no_rank_is_not_a_schedule() -> None:
    verdict = check("ring", lambda rank, size: [[send(size, 0), reduce(size, 0)]])
    assert not verdict
