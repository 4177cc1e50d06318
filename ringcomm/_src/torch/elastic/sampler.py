"""A sampler that can continue in the middle of an epoch, with another number of ranks."""

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
    """Distributes the indices of a dataset over the ranks, except those processed in this epoch.

    Ranks get the same number of indices; if the division leaves a remainder, some indices are used
    twice. Call `record_batch` after each batch and `set_epoch` at the end of each epoch.
    `load_state_dict` and `reset` distribute the rest of the epoch again, over the current ranks.

    Parameters
    ----------
    dataset : Sized
        Any object with a length, which does not change.
    shuffle : bool
        True: an order that depends on seed and epoch only; False: the dataset's order.
    seed : int
        Equal on all ranks.
    process_set : ProcessSet
        The ranks that get indices; this rank is among them.

    Raises
    ------
    ValueError
        The call precedes ``init()``, or this rank is not in the process set.

    Examples
    --------
    >>> sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
    >>> len(sampler)
    4
    >>> sampler.record_batch(0, batch_size=1)  # one index of each rank
    >>> sampler.state_dict()
    {'epoch': 0, 'processed_num': 2}
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
        self.processed_num = 0  # indices processed, from the start of the epoch's order
        self.processed_indices: set[int] = set()  # further processed indices, anywhere in the order
        self.indices: list[int] = []  # this rank's indices in the last iteration
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch without processed indices. Call it at the end of the previous one."""
        self.epoch, self.processed_num = epoch, 0
        self.processed_indices.clear()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that every rank processed ``batch_size`` samples. ``batch_idx`` is ignored."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices: Iterable[int]) -> None:
        """Records that these indices have been processed, by any rank. Call it on all ranks."""
        self.processed_indices.update(int(index) for index in indices)

    def state_dict(self) -> dict[str, Any]:
        """Returns the progress of the epoch."""
        state: dict[str, Any] = {"epoch": self.epoch, "processed_num": self.processed_num}
        if self.processed_indices:
            state["processed_indices"] = sorted(self.processed_indices)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the progress that ``state_dict`` returned."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict.get("processed_num", 0)
        self.processed_indices = set(state_dict.get("processed_indices", ()))
        self.reset()

    def reset(self) -> None:
        """Distributes the rest of the epoch over the current ranks."""
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
