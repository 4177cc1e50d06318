"""Eager-SGD: gradients are averaged as soon as a quorum of ranks has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm.process_sets import global_process_set
from ringcomm.relaxed.eager import Eager as Rounds
from ringcomm.relaxed.quorum import least_of
from ringcomm.torch.relaxed.gradients import GradientsOptimizer
from ringcomm.torch.relaxed.optimizer import relaxed, replica_of
from ringcomm.torch.relaxed.replica import GradientReplica


def Eager(
    optimizer: torch.optim.Optimizer,
    quorum: str | int = "majority",
    resync: int = 64,
    model: torch.nn.Module | None = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """An optimizer like ``optimizer`` that steps with the mean of the ranks' gradients, which is made as soon as a
    quorum has come: of who has not come, zeros are in it. Who comes late does not wait: it steps with the sum of the
    means that it has missed, and its gradients are in the next. None is lost. A mean divides by the number of ranks,
    whoever came.

    Weights differ a little from rank to rank: by what is on its way, and by what momentum makes of several means at
    once. The model (``global_weights()``, and what ``finish()`` leaves) is the mean of all. A rank that has finished
    counts as zeros.

    Source: Li et al., "Taming unbalanced training workloads in deep learning with partial collective operations",
    arXiv:1908.04207; there, who is late uses the last mean only.

    Args:
        optimizer: any but LBFGS.
        quorum: "solo": the first rank that comes begins. "majority": one rank, drawn anew each time, must have come, so
            that on average half of the others have. A number: so many must have; all of them is synchronous training.
        resync: all ranks take the mean of their weights after so many rounds; 0: never.
        model: its floating buffers (BatchNorm's statistics) are averaged then.
        named_parameters: as DistributedOptimizer's; names for errors.
        process_set: the ranks.

    Raises:
        ValueError: arguments that are none. MismatchError: on every rank, ranks differ.
    """
    least_of(quorum, process_set.size())
    settings = {"quorum": quorum, "resync": resync}
    made, name, parameters = relaxed(optimizer, "Eager", named_parameters, process_set, GradientsOptimizer, **settings)
    gradients = GradientReplica(parameters)
    made._method = Rounds(name, replica_of(parameters, model), gradients, quorum, resync, process_set)
    return made
