"""Gradient sharing: ranks exchange only the large changes that their optimizers make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.sharing import Sharing
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import relaxed, replica_of


def GradientSharing(
    optimizer: torch.optim.Optimizer,
    threshold: float = 1e-3,
    adaptive: bool = True,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that exchanges only large changes of weights, by a threshold.

    The change by this rank's step, divided by the number of ranks, is added to a residual. For each
    element that reaches the threshold a sign is sent, every rank moves that weight by the threshold, and
    the residual keeps the rest. Weights are equal on all ranks. Elements are sent as indices, or as two
    bits per element if they are many.

    Source: Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech
    2015; DL4J's SharedTrainingMaster.

    Args:
        optimizer: any except LBFGS; its state is local to each rank.
        threshold: change of a weight for one sign.
        adaptive: adapts the threshold to keep the density of the data sent between 0.0001 and 0.01.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks.

    Raises:
        ValueError: the threshold is not positive. MismatchError: ranks differ.
    """
    if not threshold > 0:
        raise ValueError(f"threshold={threshold}: a positive number")
    made, name, parameters = relaxed(
        optimizer, "GradientSharing", named_parameters, process_set, threshold=threshold, adaptive=adaptive
    )
    made._method = Sharing(name, replica_of(parameters, None), threshold, adaptive, process_set)
    return made
