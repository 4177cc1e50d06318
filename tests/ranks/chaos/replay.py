"""Computes a job's results from the history of its memberships, without the program's code.

The history holds for each generation its size, and the step of the commit from which it began. A
generation's steps end at the step from which the next generation begins.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any

import numpy as np

Note = dict[str, Any]

_LOST = ("PeerLostError", "RankLeftError", "ShutDownError")


class Wrong(Exception):
    """The error for an invariant that does not hold."""


def check(notes: list[Note], shape: tuple[float, ...], memory_lost: bool) -> list[tuple[int, int]]:
    """Checks all invariants, and raises Wrong.

    `memory_lost`: commits may be lost, because all agents died. Returns the history.
    """
    history = history_of(notes, memory_lost)
    check_finish(notes, shape, history)
    check_samples(notes, shape, history)
    return history


def history_of(notes: list[Note], memory_lost: bool) -> list[tuple[int, int]]:
    """Returns (generation, first step) of each generation. Raises Wrong if commits were lost."""
    history: list[tuple[int, int]] = []
    sealed, newest = -1, 0
    for note in notes:
        newest = max(newest, note["gen"]) if note["what"] == "began" else newest
        if note["gen"] < newest:
            raise Wrong(f"a rank of generation {note['gen']} still ran when {newest} had begun: {note}")
        if note["what"] == "began":
            begun = {other["step"] for other in notes if other["what"] == "began" and other["gen"] == note["gen"]}
            if len(begun) != 1:
                raise Wrong(f"ranks of generation {note['gen']} began at steps {sorted(begun)}")
            if history and history[-1][0] == note["gen"]:
                continue
            if note["step"] < sealed and not memory_lost:
                raise Wrong(f"generation {note['gen']} began at step {note['step']}, but {sealed} was sealed")
            if note["step"] < sealed:
                sealed = note["step"]
            history.append((note["gen"], note["step"]))
        elif note["what"] == "sealed":
            sealed = max(sealed, note["step"])
    return history


def _segments(notes: list[Note], history: list[tuple[int, int]], last: int) -> list[tuple[int, int, int, int]]:
    """Returns (generation, size, first step, end) of the steps in the final result."""
    sizes = {note["gen"]: note["size"] for note in notes if note["what"] == "began"}
    segments: list[tuple[int, int, int, int]] = []
    for index, (generation, first) in enumerate(history):
        after = history[index + 1][1] if index + 1 < len(history) else last
        # If commits were lost, steps after the restored commit do not count.
        segments = [(g, n, a, min(b, first)) for g, n, a, b in segments if a < first]
        if after > first:
            segments.append((generation, sizes[generation], first, after))
    return segments


def check_finish(notes: list[Note], shape: tuple[float, ...], history: list[tuple[int, int]]) -> None:
    """All ranks end with the weights of an uninterrupted run with that history."""
    last = max(note["gen"] for note in notes)
    ends = [note for note in notes if note["what"] == "finished" and note["gen"] == last]
    if not ends or len(ends) != ends[0]["size"]:
        raise Wrong(f"{len(ends)} ranks of the last generation, {last}, have finished")
    digests = {note["digest"] for note in ends}
    steps = {note["step"] for note in ends}
    expected, step = recompute(notes, shape, history)
    if steps != {step}:
        raise Wrong(f"ended after {sorted(steps)} steps, and its history makes {step}")
    if digests != {expected}:
        raise Wrong(f"the weights are {digests}, a replay gives {expected}; history {history}")


def recompute(notes: list[Note], shape: tuple[float, ...], history: list[tuple[int, int]]) -> tuple[str, int]:
    """Returns the digest of the weights, and the number of steps."""
    epochs, samples, batch, width = (int(value) for value in shape[:4])
    weights, momentum = np.zeros(width), np.zeros(width)
    epoch, done, step = 0, 0, 0
    for _, size, first, after in _segments(notes, history, 1 << 30):
        if first != step:
            raise Wrong(f"a generation went on from step {first}, after {step}")
        dealt = _deal(samples, epoch, done, size)
        while step < after and epoch < epochs:
            share, dealt = dealt[: batch * size], dealt[batch * size :]
            momentum = momentum * 0.5 + _gradient(weights, share, step, size)
            weights = weights - momentum / 1024
            step, done = step + 1, done + len(share)
            if not dealt:
                epoch, done = epoch + 1, 0
                dealt = _deal(samples, epoch, 0, size)
    return hashlib.sha256(weights.tobytes()).hexdigest(), step


def _deal(samples: int, epoch: int, done: int, size: int) -> list[int]:
    order = list(range(samples))
    random.Random(epoch).shuffle(order)
    left = order[done:]
    return left + [left[i % len(left)] for i in range(-len(left) % size)]


def _gradient(weights: np.ndarray, share: list[int], step: int, size: int) -> np.ndarray:
    """Returns the sum over all ranks; the ranks take the indices of the share in turn."""
    numbers, ranks = np.array(share, np.int64), np.arange(len(share), dtype=np.int64) % size
    mixed = np.floor(weights * 8).astype(np.int64) + np.arange(len(weights), dtype=np.int64) * 31
    mixed = mixed + (numbers * 1009 + ranks * 77)[:, None] + step * 9176 + size * 131
    return ((((mixed * 2654435761) & 0x7FFFFFFF) >> 7) % 257 - 128).sum(0).astype(float)


def check_samples(notes: list[Note], shape: tuple[float, ...], history: list[tuple[int, int]]) -> None:
    """Each epoch uses every index once; its last batch has fewer duplicates than ranks."""
    epochs, samples = int(shape[0]), int(shape[1])
    batches: list[list[Note]] = [[] for _ in range(epochs)]
    for generation, _, first, after in _segments(notes, history, 1 << 30):
        for note in notes:
            if note["what"] == "samples" and note["gen"] == generation and first <= note["step"] < after:
                batches[note["epoch"]].append(note)
    for epoch, done in enumerate(batches):
        last = max((note["step"] for note in done), default=-1)
        size = max((note["size"] for note in done if note["step"] == last), default=0)
        times = Counter(index for note in done for index in note["indices"])
        last_batch = Counter(index for note in done if note["step"] == last for index in note["indices"])
        missing = set(range(samples)) - set(times)
        more = {index for index, count in times.items() if count > 1}
        if missing:
            raise Wrong(f"epoch {epoch} has left out {sorted(missing)}")
        if times.total() - samples >= max(1, size) or not more <= set(last_batch):
            raise Wrong(f"epoch {epoch} has done twice {sorted(more)}; its last batch was {dict(last_batch)}")


def check_refusals(notes: list[Note]) -> None:
    """A refused commit raises one typed error with one text, unless a rank was lost."""
    refusals = [note for note in notes if note["what"] == "refused"]
    for generation in {note["gen"] for note in refusals}:
        mine = [note for note in refusals if note["gen"] == generation]
        said = [note for note in mine if note["error"] not in _LOST]
        if any(note["error"] != "RingcommError" or "could not be stored" not in note["text"] for note in said):
            raise Wrong(
                f"a commit without memory gave {[(note['rank'], note['error'], note['text']) for note in said]}"
            )
        if len({note["text"] for note in said}) > 1:
            raise Wrong(f"a commit without memory gave several errors: {[note['text'] for note in said]}")
        if len(said) == len(mine) < mine[0]["size"]:
            raise Wrong(f"a commit without memory was refused on {len(mine)} of {mine[0]['size']} ranks")
