"""Local SGD: ranks train separately, and average their weights from time to time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ringcomm._src.decentralized.periodic import Periodic, wire_of
from ringcomm._src.decentralized.rounds import Lane
from ringcomm._src.decentralized.rules import Mean
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch import loss_scaling
from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, relaxed, replica_of
from ringcomm._src.torch.relaxed.replica import GradientReplica, TensorReplica, statistics_of


class _LocalSGD(RelaxedOptimizer):
    """Base class that LocalSGD adds to the optimizer's class."""

    _momentum: str
    _synchronous: int  # number of first steps in which gradients are averaged
    _gradients: Lane | None

    def _gradients_made(self, scaler: Any) -> None:
        if self._gradients is not None and self._gradients.begun < self._synchronous:
            self._gradients.exchange()
            if scaler is not None:
                loss_scaling.recheck_overflow(self, scaler)

    def _exchanged(self) -> None:
        if self._momentum == "reset":
            self.state.clear()


class _ReplicaWithState(TensorReplica):
    """Parameters, and optimizer state of the same shapes: momenta and variances.

    State that does not exist yet counts as zeros.
    """

    def __init__(self, optimizer: Any, parameters: list[torch.Tensor], model: torch.nn.Module | None) -> None:
        super().__init__(parameters, statistics_of(model))
        self._optimizer, self._parameters, self._weights = optimizer, parameters, list(self.fragments[0])
        self._keys = _parameter_shaped_keys(optimizer)
        self._zeros = [torch.zeros_like(p) for p in parameters for _ in self._keys]
        self.fragments = [self._weights + self._zeros]
        self.sizes = [sum(map(self.count, self.fragments[0]))]

    def items(self, fragment: int) -> list[torch.Tensor]:
        state = self._optimizer.state
        kept = [state.get(p, {}).get(key) for p in self._parameters for key in self._keys]
        for zero in self._zeros:
            zero.zero_()
        return self._weights + [
            zero if tensor is None else tensor for tensor, zero in zip(kept, self._zeros, strict=True)
        ]


def _parameter_shaped_keys(optimizer: Any) -> list[str]:
    """Returns the keys of state tensors that have the parameter's shape.

    A trial optimizer of the same class takes a step, which creates its state.
    """
    probe = torch.zeros(2, requires_grad=True)
    probe.grad = torch.zeros(2)
    group = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    base: Any = optimizer._base
    trial: Any = object.__new__(base)
    torch.optim.Optimizer.__init__(trial, [{"params": [probe], **group}], dict(optimizer.defaults))
    with contextlib.suppress(KeyError):  # for example Adagrad, whose constructor makes the state
        base.step(trial)
    seen = [(trial.state[probe], probe)] + [(state, p) for p, state in optimizer.state.items()]
    return sorted({key for state, p in seen for key, value in state.items() if _has_shape_of(value, p)})


def _has_shape_of(value: Any, parameter: torch.Tensor) -> bool:
    return torch.is_tensor(value) and value.shape == parameter.shape and value.dim() > 0 and value.is_floating_point()


def LocalSGD(
    optimizer: torch.optim.Optimizer,
    every: int | str = 8,
    start: int = 0,
    momentum: str = "local",
    groups: Mapping[int, Any] | None = None,
    overlap: bool = False,
    model: torch.nn.Module | None = None,
    wire: Any = None,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that steps locally, and periodically averages weights over all ranks.

    Each step uses this rank's gradients; ranks may take different numbers of steps. Creating the
    optimizer is collective, and broadcasts the first rank's weights. With ``every=n``, it sends 1/n
    of the bytes that DistributedOptimizer sends, which helps with a slow network. LocalSGD helps
    with a slow rank only if ``every`` is a time.

    Source: Stich, arXiv:1805.09767; post-local (``start``): Lin et al., arXiv:1808.07217;
    hierarchical (``groups``): Castiglia et al., arXiv:2007.13819; ``overlap``: Shen et al.,
    arXiv:1906.12043.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS.
    every : int | str
        Steps between exchanges, or a time (for example "200ms"). A rank then exchanges after its
        first step past that time, so ranks wait for at most one step of another rank.
    start : int
        Number of first steps in which gradients are averaged, as DistributedOptimizer does.
    momentum : str
        Effect of an exchange on the optimizer's state: "local" (none), "average" (the ranks' mean
        replaces it) or "reset" (it is cleared).
    groups : Mapping[int, Any] | None
        Replaces ``every``. ``{4: "host", 16: "all"}`` averages over a host's ranks every 4 steps,
        and over all ranks every 16 steps. Values may be process sets. Each number divides the next.
    overlap : bool
        Weights are sent while steps continue. A round ends when the next one begins: x <- x + mean
        - (the weights that were sent).
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are averaged too.
    wire : str | None
        "float16" or "bfloat16": data format between hosts.
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
    >>> with hvd.LocalSGD(torch.optim.SGD([weight], lr=1.0), every=2) as optimizer:
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         (weight * (rank + 1)).sum().backward()
    ...         _ = optimizer.step()
    >>> weight.tolist()  # the mean of -2 and -4
    [-3.0, -3.0]
    """
    if momentum not in ("local", "average", "reset"):
        raise ValueError(f'momentum={momentum!r} is not supported: use "local", "average" or "reset"')
    if overlap and momentum != "local":
        raise ValueError(
            f"momentum={momentum!r} needs overlap=False: with overlap, steps change the state during an exchange"
        )
    if start < 0:
        raise ValueError(f"start={start} must not be negative")
    wire = wire_of(wire, narrow_only=True)
    settings = {"every": every, "start": start, "momentum": momentum, "groups": groups and sorted(groups)}
    made, name, parameters = relaxed(
        optimizer, "LocalSGD", named_parameters, process_set, _LocalSGD, **settings, overlap=overlap, wire=wire
    )
    replica = _ReplicaWithState(made, parameters, model) if momentum == "average" else replica_of(parameters, model)
    delay = None if overlap else 0
    made._method = Periodic(name, replica, Mean(overlap), every, process_set, groups, delay, start, wire)
    made._momentum, made._synchronous, made._gradients = momentum, start, None
    if start:
        gradients = GradientReplica(parameters)
        made._gradients = Lane(
            f"{name}.gradients",
            process_set,
            gradients.sizes,
            gradients.dtype,
            gradients.read,
            lambda fragment, outcome: gradients.write(fragment, outcome.mean),
            rounds=start,
        )
        made._method.extra_lanes.append(made._gradients)
    return made
