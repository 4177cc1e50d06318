"""EASGD: replicas and a centre that attract each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.averager import elastic_rule
from ringcomm._src.decentralized.easgd import ElasticPulls
from ringcomm._src.decentralized.periodic import Periodic, wire_of
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, relaxed, replica_of


class _EASGD(RelaxedOptimizer):
    """Base class that EASGD adds to the optimizer's class."""

    def _gradients_made(self, scaler: Any) -> None:
        if isinstance(self._method, ElasticPulls):
            self._method.pull_if_due()


def EASGD(
    optimizer: torch.optim.Optimizer,
    every: int | str = 10,
    beta: float = 0.9,
    mode: str = "sync",
    overlap: bool = True,
    model: torch.nn.Module | None = None,
    wire: Any = None,
    on_loss: str = "end",
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that steps locally, and periodically pulls its weights to a centre.

    With p ranks, weights x and a centre c, the pull is d = beta/p (x - c), x <- x - d, c <- c + d.
    Ranks keep different weights, so that they explore. ``global_weights()`` is the centre.

    Source: Zhang, Choromanska and LeCun, arXiv:1412.6651 (EAMSGD if ``optimizer`` has a momentum);
    overlapped: You, Buluc and Demmel, arXiv:1708.02983.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS.
    every : int | str
        Steps between exchanges, or a time (for example "200ms").
    beta : float
        Strength of the pull of all ranks together, in (0, 1].
    mode : str
        "sync": all ranks at the same time, by one all-reduce. "async": each rank after its own
        steps, with a centre in memory that the host's ranks share; no rank waits. "round_robin":
        like "async", but ranks take turns.
    overlap : bool
        In "sync", weights are sent during the next step, which counts towards ``every``. The
        weights sent are those from before that step.
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are averaged too. In the modes "async"
        and "round_robin" they are pulled like weights.
    wire : str | WireFormat | None
        In "sync", the data format between hosts: "float16", "bfloat16", or a wire format
        (``Compression.int8``).
    on_loss : str
        In "async" and "round_robin", selects the effect of the death of a rank: "end" (the other
        ranks get an error) or "continue" (they continue; needs ``ringrun --survive``).
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Parameter names for error messages, as in DistributedOptimizer.
    process_set : ProcessSet
        The ranks that take part. In the modes "async" and "round_robin" they must be on one host.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class. Use it in a ``with`` statement, or
        call ``finish()`` after the last step.

    Raises
    ------
    ValueError
        Arguments are invalid.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.
    UnsupportedError
        The mode is not "sync", and ranks share no memory.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> inner = torch.optim.SGD([weight], lr=1.0)
    >>> with hvd.EASGD(inner, every=1, beta=1.0, overlap=False) as optimizer:
    ...     (weight * (rank + 1)).sum().backward()
    ...     _ = optimizer.step()
    ...     with optimizer.global_weights():
    ...         print(weight.tolist())  # the centre: the mean of -1 and -2
    [-1.5, -1.5]
    """
    if mode not in ("sync", "async", "round_robin"):
        raise ValueError(f'mode={mode!r} is not supported: use "sync", "async" or "round_robin"')
    wire = wire_of(wire, narrow_only=False)
    settings = {"every": every, "beta": beta, "mode": mode, "overlap": overlap, "wire": wire}
    made, name, parameters = relaxed(optimizer, "EASGD", named_parameters, process_set, _EASGD, **settings)
    replica = replica_of(parameters, model)
    rule = elastic_rule(beta, process_set, replica)
    if mode == "sync":
        made._method = Periodic(name, replica, rule, every, process_set, delay=int(overlap), wire=wire)
    else:
        turns = mode == "round_robin"
        made._method = ElasticPulls(name, replica, every, rule.alpha, turns, process_set, on_loss)
    return made
