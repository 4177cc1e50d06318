"""Threshold sharing of what optimizers change."""

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
    """An optimizer like ``optimizer``, of whose steps ranks tell each other only what is large: what this rank's step
    would change, over the number of ranks, is added to a residual; of each element that has reached the threshold a
    sign travels, every rank moves that weight by the threshold, and the residual keeps the rest. Weights are the same
    on all ranks. Elements are sent as indices, or as two bits of each where they are many.

    Source: Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015; DL4J's
    SharedTrainingMaster.

    Args:
        optimizer: any but LBFGS; its state is each rank's own.
        threshold: what a weight moves by at once.
        adaptive: the threshold follows the density of what is sent, to keep it between 0.0001 and 0.01.
        named_parameters: as DistributedOptimizer's; names for errors.
        process_set: the ranks.

    Raises:
        ValueError: a threshold that is not positive. MismatchError: ranks differ.
    """
    if not threshold > 0:
        raise ValueError(f"threshold={threshold}: a positive number")
    made, name, parameters = relaxed(
        optimizer, "GradientSharing", named_parameters, process_set, threshold=threshold, adaptive=adaptive
    )
    made._method = Sharing(name, replica_of(parameters, None), threshold, adaptive, process_set)
    return made
