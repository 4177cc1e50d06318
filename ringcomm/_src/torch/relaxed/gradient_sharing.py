"""Gradient sharing: ranks exchange only the large changes that their optimizers make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.threshold_sharing import ThresholdSharing
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import relaxed, replica_of


def GradientSharing(
    optimizer: torch.optim.Optimizer,
    threshold: float = 1e-3,
    adaptive: bool = True,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that exchanges only changes of weights that reach a threshold.

    The change of the weights by this rank's step is divided by the number of ranks and added to a
    residual. If an element of the residual reaches the threshold, its sign is sent. Every rank then
    changes this weight by the threshold, and the residual keeps the rest. Weights are equal on all
    ranks. The signs are sent with their indices, or as two bits per element if that is shorter.

    Source: Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
    Interspeech 2015; DL4J's SharedTrainingMaster.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS; its state is local to each rank.
    threshold : float
        Change of a weight that one sent sign causes.
    adaptive : bool
        True: adapts the threshold, to keep the share of elements sent between 0.0001 and 0.01.
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Parameter names for error messages, as in DistributedOptimizer.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class. Use it in a ``with`` statement, or
        call ``finish()`` after the last step.

    Raises
    ------
    ValueError
        The threshold is not positive.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> inner = torch.optim.SGD([weight], lr=1.0)
    >>> with hvd.GradientSharing(inner, threshold=0.5, adaptive=False) as optimizer:
    ...     weight.sum().backward()
    ...     _ = optimizer.step()
    >>> weight.tolist()  # one sign of each rank: -0.5 - 0.5
    [-1.0, -1.0]
    """
    if not threshold > 0:
        raise ValueError(f"threshold={threshold} must be positive")
    made, name, parameters = relaxed(
        optimizer, "GradientSharing", named_parameters, process_set, threshold=threshold, adaptive=adaptive
    )
    made._method = ThresholdSharing(name, replica_of(parameters, None), threshold, adaptive, process_set)
    return made
