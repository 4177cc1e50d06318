"""Defines the Ray actors of a job: its ranks, and an actor that exchanges values to start MPI.

ray_runner.py creates them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray


class AllgatherActor:
    """An actor for allgathers of one item from each rank. `turn`: number of the allgather."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._turns: dict[int, tuple[dict[int, Any], asyncio.Event]] = {}

    async def allgather(self, turn: int, rank: int, item: Any) -> list[Any]:
        items, full = self._turns.setdefault(turn, ({}, asyncio.Event()))
        items[rank] = item
        if len(items) == self._size:
            full.set()
            del self._turns[turn]
        await full.wait()
        return [items[of] for of in range(self._size)]


class Worker:
    """The actor that is one rank."""

    executable: Any = None

    def location(self) -> tuple[str, list[Any]]:
        """Returns the id of this worker's node, and the ids of its GPUs."""
        return ray.get_runtime_context().get_node_id(), list(ray.get_gpu_ids())

    def start_mpi(self, allgather_actor: Any, rank: int, size: int, variables: Mapping[str, str]) -> None:
        from ringcomm._src.platform import pmi

        os.environ.update(variables)
        turns = itertools.count()
        space = pmi.GatheredSpace(lambda new: ray.get(allgather_actor.allgather.remote(next(turns), rank, new)))
        pmi.start_mpi(space, rank, size, "Ray", "RayExecutor.start()")

    def start_executable(self, kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.execute(lambda _: setattr(self, "executable", kind(*args, **kwargs)))

    def execute(self, fn: Callable[[Any], Any]) -> Any:
        """Calls a function that all ranks call. After an error, peers get RankLeftError."""
        try:
            return fn(self.executable)
        except BaseException:
            if "ringcomm._src.named.runtime" in sys.modules:
                sys.modules["ringcomm._src.named.runtime"].shutdown()
            if "ringcomm._src.process.exits" in sys.modules:
                sys.modules["ringcomm._src.process.exits"].leave("the function that this rank executed has failed")
            raise

    def execute_alone(self, fn: Callable[[Any], Any]) -> Any:
        return fn(self.executable)

    def end(self) -> None:
        from ringcomm._src.process import exits

        exits.finish()
