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
    """Returns an optimizer that takes local steps, and periodically pulls its weights and a centre together.

    The pull is d = beta/p (x - c), x <- x - d, c <- c + d. Ranks keep different weights, so that they
    explore. The model (``global_weights()``) is the centre.

    Source: Zhang, Choromanska and LeCun, arXiv:1412.6651 (with a momentum in ``optimizer``, EAMSGD);
    overlapped: You, Buluc and Demmel, arXiv:1708.02983.

    Args:
        optimizer: any except LBFGS.
        every: steps between exchanges, or a time such as "200ms".
        beta: the pull of all ranks together, in (0, 1].
        mode: "sync": all ranks at the same time, by one all-reduce. "async": each rank after its own
            steps, with a centre in memory that the host's ranks share; no rank waits. "round_robin":
            like "async", but in turns.
        overlap: in "sync", weights are sent during the next step, which counts towards ``every``. The
            weights sent are those from before that step.
        model: its floating-point buffers (BatchNorm's statistics) are averaged too; in the other modes
            they are pulled like weights.
        wire: in "sync", the data format between hosts: "float16", "bfloat16", or a wire format such as
            ``Compression.int8``.
        on_loss: in the other modes: "end", or "continue": ranks continue after another rank has died, if
            the launcher lets them.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks; in the other modes, of one host.

    Raises:
        ValueError: arguments are invalid. MismatchError: on every rank, if ranks differ.
        UnsupportedError: ranks share no memory.
    """
    if mode not in ("sync", "async", "round_robin"):
        raise ValueError(f'mode={mode!r}: "sync", "async" or "round_robin"')
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
