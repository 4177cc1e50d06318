"""Elastic jobs under drawn faults; many in the slow tests. The checks detect errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import launching
import namespaces
import pytest

CHAOS = Path(__file__).resolve().parent / "chaos"
sys.path.insert(0, str(CHAOS))

import replay  # noqa: E402

# The faults of these seeds: three kills at different times; a dead driver; a dead zygote and a
# stopped rank. Of MORE_SEEDS: a killed rank; a commit without memory.
SEEDS, MORE_SEEDS = ("11", "45", "14"), ("13", "62")


def run_jobs(folder: Path, *arguments: str) -> None:
    done = launching.run([CHAOS / "run.py", *arguments], folder, timeout=3000)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_few_jobs(tmp_path: Path) -> None:
    run_jobs(tmp_path, "--seed", *SEEDS)


@pytest.mark.slow
def test_many_jobs(tmp_path: Path) -> None:
    run_jobs(tmp_path, "--seed", *MORE_SEEDS)
    run_jobs(tmp_path, "--seed", "1000", "--jobs", "100")


@pytest.mark.slow
def test_many_jobs_on_hosts(tmp_path: Path) -> None:
    if why := namespaces.missing():
        pytest.skip(why)
    run_jobs(tmp_path, "--seed", "3000", "--jobs", "20", "--hosts", "3")


# ---- the checks, on constructed notes --------------------------------------------------------------------------------
SHAPE = (1, 8, 1, 16, 0.0)


def notes_of(history: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Returns the notes of a correct job: (generation, size, first step) per generation."""
    notes: list[dict[str, Any]] = []
    done, step = 0, 0
    for index, (generation, size, first) in enumerate(history):
        assert first == step
        after = history[index + 1][2] if index + 1 < len(history) else 1 << 30
        base = {"gen": generation, "size": size, "t": 0.0}
        notes += [{**base, "what": "began", "rank": rank, "step": step} for rank in range(size)]
        dealt = replay._deal(8, 0, done, size)
        while step < after and dealt:
            share, dealt = dealt[:size], dealt[size:]
            for rank, one in enumerate(share):
                notes.append({**base, "what": "samples", "rank": rank, "step": step, "epoch": 0, "indices": [one]})
            step, done = step + 1, done + size
            notes += [{**base, "what": "sealed", "rank": rank, "step": step} for rank in range(size)]
    digest, steps = replay.recompute(notes, SHAPE, [(generation, first) for generation, _, first in history])
    notes += [{**base, "what": "finished", "rank": rank, "step": steps, "digest": digest} for rank in range(size)]
    return notes


@pytest.fixture
def notes() -> list[dict[str, Any]]:
    return notes_of([(1, 3, 0), (2, 2, 1), (4, 3, 2)])


def wrong(notes: list[dict[str, Any]]) -> str:
    with pytest.raises(replay.Wrong) as caught:
        replay.check(notes, SHAPE, memory_lost=False)
    return str(caught.value)


def test_a_job_without_fault_is_right(notes: list[dict[str, Any]]) -> None:
    assert replay.check(notes, SHAPE, memory_lost=False) == [(1, 0), (2, 1), (4, 2)]


def test_other_weights_are_wrong(notes: list[dict[str, Any]]) -> None:
    notes[-1]["digest"] = "another"
    assert "a replay gives" in wrong(notes)


def test_the_same_steps_on_other_ranks_give_other_weights(notes: list[dict[str, Any]]) -> None:
    other = json.loads(json.dumps(notes))
    for note in other:
        if note["what"] == "began" and note["gen"] == 2:
            note["size"] = 3
    assert "a replay gives" in wrong(other)


@pytest.mark.parametrize(("into", "said"), [(None, "left out"), (0, "twice")])
def test_a_sample_left_out_or_done_twice_is_wrong(notes: list[dict[str, Any]], into: int | None, said: str) -> None:
    samples = [note for note in notes if note["what"] == "samples"]
    if into is None:
        samples[0]["indices"] = []
    else:
        samples[into]["indices"] = [samples[into]["indices"][0], samples[1]["indices"][0]]
    assert said in wrong(notes)


def test_a_commit_that_was_sealed_must_not_be_lost(notes: list[dict[str, Any]]) -> None:
    place = next(i for i, note in enumerate(notes) if note["what"] == "began" and note["gen"] == 2)
    notes.insert(place, {"gen": 1, "size": 3, "t": 0.0, "what": "sealed", "rank": 0, "step": 2})
    assert "2 was sealed" in wrong(notes)


def test_ranks_that_begin_at_different_steps_are_wrong(notes: list[dict[str, Any]]) -> None:
    next(note for note in notes if note["what"] == "began" and note["gen"] == 2)["step"] = 0
    assert "began at steps" in wrong(notes)


def test_a_rank_of_a_generation_that_is_over_is_wrong(notes: list[dict[str, Any]]) -> None:
    notes.append({"gen": 1, "size": 3, "t": 0.0, "what": "phase", "rank": 0, "step": 1})
    assert "still ran" in wrong(notes)


def test_a_refusal_is_the_same_on_all_ranks() -> None:
    text = "commit 3 could not be stored on the hosts of ranks [0]"
    notes = [
        {"gen": 1, "size": 2, "what": "refused", "rank": i, "error": "RingcommError", "text": text} for i in (0, 1)
    ]
    replay.check_refusals(notes)
    with pytest.raises(replay.Wrong, match="refused on 1 of 2"):
        replay.check_refusals(notes[:1])
    with pytest.raises(replay.Wrong, match="without memory gave"):
        replay.check_refusals([notes[0], {**notes[1], "error": "nothing", "text": ""}])
