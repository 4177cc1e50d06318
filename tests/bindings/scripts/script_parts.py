"""Classes that the references and script names of all bindings share."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

import ringcomm


class Joined:
    """The item of a rank that has joined."""


class PlainSet:
    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks


class PlainRanks:
    """The names of references that are identical for all frameworks.

    `comm` is a communicator of all ranks. Each call of `gather` is one collective, in the same
    order on all ranks.
    """

    Average, Sum = "Average", "Sum"

    def __init__(self, comm: ringcomm.Communicator) -> None:
        self._comm, self._rank, self._size = comm, comm.rank, comm.size
        self.global_process_set = PlainSet(list(range(comm.size)))

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def gather(self, item: Any) -> list[Any]:
        """Returns the items of all ranks that have not joined, in the order of ranks."""
        data = np.frombuffer(pickle.dumps(item), np.uint8)
        counts = self._comm.allgather(np.array([len(data)])).tolist()
        whole = self._comm.allgather(data, counts).tobytes()
        ends = np.cumsum(counts).tolist()
        items = [pickle.loads(whole[end - count : end]) for end, count in zip(ends, counts, strict=True)]
        return [one for one in items if not isinstance(one, Joined)]

    def add_process_set(self, ranks: list[int]) -> PlainSet:
        return PlainSet(ranks)

    def barrier(self) -> None:
        self.gather(None)

    def join(self) -> None:
        while self.gather(Joined()):
            pass

    def broadcast_object(self, item: Any, root_rank: int = 0) -> Any:
        return self.gather(item)[root_rank]

    def mean(self, arrays: list[np.ndarray[Any, Any]], op: str, members: PlainSet | None) -> list[Any]:
        """Returns each array's mean (or sum) over the members; on other ranks, the arrays."""
        ranks = (members or self.global_process_set).ranks
        parts = [given for rank, given in self.gather((self._rank, arrays)) if rank in ranks]
        if len({tuple(one.shape for one in part) for part in parts}) > 1:
            raise ValueError("shapes differ between ranks")
        if self._rank not in ranks:
            return arrays
        totals = [sum(each[1:], start=each[0]) for each in zip(*parts, strict=True)]
        means = [one / len(ranks) if op == self.Average else one for one in totals]
        return [np.asarray(mean, one.dtype) for mean, one in zip(means, arrays, strict=True)]


class Watched:
    """One run of a script. `seen`: the values to compare, in order."""

    def __init__(self, hvd: Any) -> None:
        self.hvd, self.batches = hvd, 0
        self.seen: list[tuple[str, Any]] = []
        self.plain = isinstance(hvd, PlainRanks)

    def random(self) -> np.random.Generator:
        """Returns a new random generator for the next batch of this rank."""
        self.batches += 1
        return np.random.default_rng(100 * self.batches + self.hvd.rank())

    def note(self, name: str, value: Any) -> None:
        self.seen.append((name, np.array(value) if hasattr(value, "__array__") else value))
