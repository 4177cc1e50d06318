"""DiLoCo and SlowMo: an outer optimizer steps on the change of the ranks' weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.averager import outer_rule
from ringcomm._src.decentralized.periodic import Periodic, wire_of
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import relaxed, replica_of


def DiLoCo(
    optimizer: torch.optim.Optimizer,
    every: int | str = 100,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    nesterov: bool = True,
    fragments: int = 1,
    delay: int = 0,
    blend: float = 0.5,
    model: torch.nn.Module | None = None,
    wire: Any = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that takes local steps; an outer optimizer periodically combines the ranks' weights.

    The outer optimizer is SGD with Nesterov momentum. It steps from the last common weights a, with
    a - (mean of the ranks' weights) as its gradient.

    The defaults are DiLoCo's; its inner optimizer is AdamW. SlowMo is ``outer_lr=1.0,
    outer_momentum=0.5, nesterov=False``. Streaming DiLoCo is ``fragments=4, delay=2``: one part of the
    parameters at a time is sent while steps continue. ``outer_lr=1, outer_momentum=0`` is LocalSGD. The
    model (``global_weights()``) is a.

    Source: Douillard et al., arXiv:2311.08105 and arXiv:2501.18512; Wang et al. (SlowMo),
    arXiv:1910.00643.

    Args:
        optimizer: any except LBFGS.
        every: steps in which every parameter is exchanged once, or a time such as "2s".
        outer_lr, outer_momentum, nesterov: options of the outer optimizer.
        fragments: number of parts of about equal size into which the parameters are divided. One part is
            exchanged every every/fragments steps.
        delay: steps from the beginning of an exchange to the use of its result; less than ``every``.
        blend: with a delay, the share of this rank's weights in its new weights; the rest is a's.
        model: its floating-point buffers (BatchNorm's statistics) are averaged at each exchange of the
            last fragment.
        wire: data format of a change between hosts: "float16", "bfloat16", or a wire format such as
            ``Compression.int8`` or ``.int4``, which add their residual to the next change.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks.

    Raises:
        ValueError: arguments are invalid, or exclude each other. MismatchError: on every rank, if ranks
            differ.
    """
    wire = wire_of(wire, narrow_only=False)
    outer = {"lr": outer_lr, "momentum": outer_momentum, "nesterov": nesterov, "blend": blend}
    settings = {"every": every, "outer": outer, "fragments": fragments, "delay": delay, "wire": wire}
    made, name, parameters = relaxed(optimizer, "DiLoCo", named_parameters, process_set, **settings)
    replica = replica_of(parameters, model, fragments)
    rule = outer_rule(outer_lr, outer_momentum, nesterov, delay, blend, every, replica)
    made._method = Periodic(name, replica, rule, every, process_set, delay=delay, wire=wire)
    return made
