"""WAGMA-SGD: means of small groups that change from step to step, which nobody waits for long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm.process_sets import global_process_set
from ringcomm.relaxed.group_average import GroupAverage as Rounds
from ringcomm.topology import groups
from ringcomm.torch.relaxed.optimizer import relaxed, replica_of


def GroupAverage(
    optimizer: torch.optim.Optimizer,
    group: int | None = None,
    resync: int = 10,
    model: torch.nn.Module | None = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """An optimizer like ``optimizer`` that steps on this rank's gradients, and after its step averages its weights with
    a group of ranks, another one each time. The first of a group to come begins; for who has not come, its weights of
    the step before are in the mean. Who comes late does not wait: it takes (n mean + own weights) / (n + 1).

    The model (``global_weights()``, and what ``finish()`` leaves) is the mean of all replicas.

    Source: Li et al., "Breaking (global) barriers in parallel stochastic optimization with wait-avoiding group
    averaging", arXiv:2005.00124.

    Args:
        optimizer: any but LBFGS.
        group: ranks in a group; None: the root of their number, rounded up. Groups: `ringcomm.topology.groups`.
        resync: all ranks take the mean when one of them has made so many steps since the last time, each after the step
            that it is at; 0: never.
        model: its floating buffers (BatchNorm's statistics) are averaged too.
        named_parameters: as DistributedOptimizer's; names for errors.
        process_set: the set of all ranks.

    Raises:
        ValueError: arguments that are none. MismatchError: on every rank, ranks differ.
    """
    graph = groups(group)
    made, name, parameters = relaxed(
        optimizer, "GroupAverage", named_parameters, process_set, group=group, resync=resync
    )
    made._method = Rounds(name, replica_of(parameters, model), graph, resync, process_set)
    return made
