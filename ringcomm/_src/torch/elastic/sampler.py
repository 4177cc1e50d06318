"""A sampler that can go on in the middle of an epoch, with another number of ranks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch.utils.data

from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.named.runtime import session


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals the indices of a dataset out to the ranks, except those that have been processed in this epoch.

    Ranks get the same number of indices; where they do not come out even, some are dealt twice. Call `record_batch`
    after each batch and `set_epoch` at the end of each epoch. After `load_state_dict`, or `reset` when the ranks have
    changed, what is left of the epoch is dealt out anew.

    Args:
        dataset: anything with a length, which does not change.
        shuffle: in an order that depends on seed and epoch only, else in the dataset's order.
        seed: the same on all ranks.
        process_set: the ranks among which the indices are dealt out; this one is among them.

    Raises:
        ValueError: before ``init()``; this rank is not in the process set.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self.dataset, self.shuffle, self.seed, self.process_set = dataset, shuffle, seed, process_set
        self.epoch = 0
        self.processed_num = 0  # of the epoch's order, from its start
        self.processed_indices: set[int] = set()  # wherever they lie in it
        self.indices: list[int] = []  # this rank's, as last dealt out
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """A new epoch, of which nothing has been processed; to be called when the last one is over."""
        self.epoch, self.processed_num = epoch, 0
        self.processed_indices.clear()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed a batch of ``batch_size`` (``batch_idx`` is there because Horovod has it)."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices: Iterable[int]) -> None:
        """These indices have been processed, on whatever rank; to be told to the samplers of all ranks."""
        self.processed_indices.update(int(index) for index in indices)

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch has come."""
        state: dict[str, Any] = {"epoch": self.epoch, "processed_num": self.processed_num}
        if self.processed_indices:
            state["processed_indices"] = sorted(self.processed_indices)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up where the sampler that gave the state was."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict.get("processed_num", 0)
        self.processed_indices = set(state_dict.get("processed_indices", ()))
        self.reset()

    def reset(self) -> None:
        """Deals out what is left of the epoch to the ranks that there are now."""
        session()  # raises before init()
        self.num_replicas, self.rank = self.process_set.size(), self.process_set.require_rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        left = order[self.processed_num :]
        self.remaining_indices = [index for index in left if index not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        dealt = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        self.indices = list(itertools.islice(dealt, self.rank, None, self.num_replicas))
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
