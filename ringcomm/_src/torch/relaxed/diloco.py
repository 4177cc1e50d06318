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
    """Returns an optimizer that steps locally; an outer optimizer combines the ranks' weights.

    The outer optimizer is SGD with Nesterov momentum. It steps from the last common weights a, with
    a - (mean of the ranks' weights) as its gradient. ``global_weights()`` is a.

    The defaults are those of the DiLoCo paper, in which ``optimizer`` is AdamW. SlowMo is
    ``outer_lr=1.0, outer_momentum=0.5, nesterov=False``. Streaming DiLoCo is ``fragments=4,
    delay=2``: one part of the parameters at a time is sent while steps continue. ``outer_lr=1,
    outer_momentum=0`` is LocalSGD.

    Source: Douillard et al., arXiv:2311.08105 and arXiv:2501.18512; Wang et al. (SlowMo),
    arXiv:1910.00643.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS.
    every : int | str
        Steps in which every parameter is exchanged once, or a time (for example "2s").
    outer_lr, outer_momentum : float
        Learning rate and momentum of the outer optimizer.
    nesterov : bool
        True: the outer momentum is Nesterov's.
    fragments : int
        Number of parts of about equal size into which the parameters are divided. One part is
        exchanged every every/fragments steps.
    delay : int
        Steps from the beginning of an exchange to the use of its result; less than ``every``.
    blend : float
        With a delay, the share of this rank's weights in its new weights. The rest is the share of
        the new common weights a.
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are averaged at each exchange of the
        last fragment.
    wire : str | WireFormat | None
        Format in which a change is sent: "float16", "bfloat16", or a wire format, for example
        ``Compression.int8`` or ``.int4``, which adds its residual to the next change.
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
        Arguments are invalid, or exclude each other.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> inner = torch.optim.SGD([weight], lr=1.0)
    >>> with hvd.DiLoCo(inner, every=2, outer_lr=1.0, outer_momentum=0.0) as optimizer:
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         (weight * (rank + 1)).sum().backward()
    ...         _ = optimizer.step()
    >>> weight.tolist()  # the mean of -2 and -4
    [-3.0, -3.0]
    """
    wire = wire_of(wire, narrow_only=False)
    outer = {"lr": outer_lr, "momentum": outer_momentum, "nesterov": nesterov, "blend": blend}
    settings = {"every": every, "outer": outer, "fragments": fragments, "delay": delay, "wire": wire}
    made, name, parameters = relaxed(optimizer, "DiLoCo", named_parameters, process_set, **settings)
    replica = replica_of(parameters, model, fragments)
    rule = outer_rule(outer_lr, outer_momentum, nesterov, delay, blend, every, replica)
    made._method = Periodic(name, replica, rule, every, process_set, delay=delay, wire=wire)
    return made
