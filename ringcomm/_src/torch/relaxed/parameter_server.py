"""ParameterServer: an optimizer that applies its steps to weights in shared memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ringcomm._src.base.ops import Average
from ringcomm._src.decentralized import updates
from ringcomm._src.decentralized.consistency import Async, Consistency
from ringcomm._src.decentralized.store import Store
from ringcomm._src.decentralized.store_options import Scale, StoreOptions
from ringcomm._src.named.collectives import allreduce_
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.dedicated import serve
from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, evaluated, relaxed
from ringcomm._src.torch.relaxed.replica import TensorReplica, statistics_of
from ringcomm._src.torch.wrapped import delegating_step


def _adam(group: Mapping[str, Any], decoupled: bool) -> updates.Update:
    if group["amsgrad"]:
        raise ValueError("ParameterServer does not support Adam with amsgrad=True")
    decoupled = decoupled or bool(group.get("decoupled_weight_decay"))
    keys = ("lr", "betas", "eps", "weight_decay", "maximize")
    return updates.Adam(**{key: group[key] for key in keys}, decoupled=decoupled)


def _rmsprop(group: Mapping[str, Any]) -> updates.Update:
    if group["centered"]:
        raise ValueError("ParameterServer does not support RMSprop with centered=True")
    keys = ("lr", "alpha", "eps", "weight_decay", "momentum")
    return updates.RMSprop(**{key: group[key] for key in keys}, maximize=group.get("maximize", False))


def _adagrad(group: Mapping[str, Any]) -> updates.Update:
    if group["initial_accumulator_value"]:
        raise ValueError("ParameterServer does not support Adagrad with initial_accumulator_value")
    return updates.Adagrad(**{key: group[key] for key in ("lr", "lr_decay", "weight_decay", "eps", "maximize")})


def _sgd(group: Mapping[str, Any]) -> updates.Update:
    keys = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
    return updates.SGD(**{key: group[key] for key in keys})


_RULES: dict[type, Callable[[Mapping[str, Any]], updates.Update]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: lambda group: _adam(group, False),
    torch.optim.AdamW: lambda group: _adam(group, True),
    torch.optim.Adagrad: _adagrad,
    torch.optim.RMSprop: _rmsprop,
}


def rule_of(kind: type, group: Mapping[str, Any]) -> updates.Update:
    """Returns the store's update rule for a parameter group. Raises ValueError if it has none."""
    make = _RULES.get(kind)
    if make is None:
        known = ", ".join(optimizer.__name__ for optimizer in _RULES)
        raise ValueError(f"ParameterServer supports {known}, not {kind.__name__}")
    return make(group)


def _rules_of(optimizer: torch.optim.Optimizer, servers: Any) -> list[updates.Update]:
    """Returns the update rules of the optimizer's groups.

    If the store has no rule for a group, dedicated servers must take the steps in Python.
    """
    try:
        return [rule_of(type(optimizer), group) for group in optimizer.param_groups]
    except ValueError as error:
        if servers == "all":
            raise ValueError(
                f"{error}. Dedicated servers (servers=..., which call serve()) support any optimizer"
            ) from None
        warnings.warn(
            f"{error} natively. The dedicated servers (servers={servers}) take its steps in Python, and must call "
            "serve(); a shard then consists of complete tensors",
            stacklevel=3,
        )
        return [updates.Update("get") for _ in optimizer.param_groups]


class _ServerMethod(Store):
    """The method behind ParameterServer. ``native``: the store has the optimizer's rule."""

    replica: TensorReplica

    def __init__(self, native: bool, model: torch.nn.Module | None, all_ranks: Any, *what: Any) -> None:
        super().__init__(*what)
        self._native, self._all_ranks = native, all_ranks
        self._gradients = np.empty_like(self.weights)
        self._statistics = statistics_of(model)

    def step_of(self, optimizer: Any, counted: bool) -> None:
        self.replica.read_gradients(self._gradients)
        for number, group in enumerate(optimizer.param_groups if self._native else ()):
            options = dict(rule_of(optimizer._base, group).options)
            self.set_options(number, options.pop("lr"), **options)
        self.step(self._gradients if counted else None)

    def _finish(self, optimizer: Any) -> None:  # type: ignore[override]
        in_python = not self._native and self.shards[0].own_shard() is not None
        super()._finish((lambda: serve(optimizer, self)) if in_python else lambda: None)
        if self._statistics and not self.workers.lost():
            replica = TensorReplica(self._statistics)
            flat = replica.flat_copy(0)
            allreduce_(flat, op=Average, name=f"{self.name}.statistics", process_set=self._all_ranks)
            replica.write(0, flat)


class _ParameterServer(RelaxedOptimizer):
    """Base class that ParameterServer adds to the optimizer's class."""

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Pushes gradients to the store, waits as the consistency requires, and reads weights.

        After an overflow (``grad_scaler``) this rank's gradients are skipped.
        """
        loss, counted = evaluated(self, closure, grad_scaler)
        self._method.step_of(self, counted)
        return loss

    def finish(self) -> None:
        """Ends this rank's steps, waits for all ranks, and reads the store's weights.

        Collective. Further calls do nothing.
        """
        self._method.finish(self)

    def serve(self) -> None:
        """Serves as a dedicated server, without steps, until all ranks have finished."""
        self.finish()


def ParameterServer(
    optimizer: torch.optim.Optimizer,
    servers: str | int | Sequence[int] = "all",
    consistency: Consistency | None = None,
    scale: Scale = "none",
    compensate: float = 0.0,
    model: torch.nn.Module | None = None,
    every: int | str = 16,
    on_loss: str = "end",
    across: str = "service",
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that pushes gradients to shared weights and reads the weights.

    No rank waits for another, unless ``consistency`` requires it.

    The shared weights are in a parameter store, in the servers' memory. The store applies the
    optimizer's update rule in native code, with the optimizer's options (learning rate and so on)
    at the time of each push. A learning-rate schedule may depend on ``optimizer.updates``. On a
    server's host, the pushing rank applies the rule itself in shared memory, where a lock protects
    each 16 KB. For ranks of other hosts, the server's worker thread applies it while the server's
    script runs. SGD, Adam, AdamW, Adagrad and RMSprop are native. Steps of any other optimizer are
    taken in Python by dedicated servers (``if rank in servers: optimizer.serve()``).

    The optimizer's state is in the store; weight decay acts on the store's weights. With p ranks
    the weights get p updates in the time of one rank's update. Begin with the learning rate of one
    rank, and without momentum. (With Async, p ranks and momentum m, the usable learning rate is
    about (1 - m)/p of that of one rank: Mitliagkas et al., arXiv:1605.09774.)

    Source: Dean et al., NIPS 2012; Li et al., OSDI 2014. For the sources of the consistencies, see
    `ringcomm._src.decentralized.consistency`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        An optimizer of a native class. With dedicated servers, any other optimizer too; the options
        of the servers' optimizers then apply.
    servers : str | int | Sequence[int]
        Ranks that hold the weights in their memory: "all", a number of ranks, or a list. They train
        like the other ranks, or call ``optimizer.serve()`` instead.
    consistency : Consistency | None
        ``hvd.Async()`` (the default), ``hvd.SSP(s)``, ``hvd.SoftSync(S)``, ``hvd.Sync()``,
        ``hvd.Backup(S)``.
    scale : Scale
        Factor for a gradient if the weights had t updates since the rank read them: "none" (1),
        "inverse" (1/t), or a function of t.
    compensate : float
        Strength of delay compensation (DC-ASGD, arXiv:1609.08326), for example 0.04.
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are separate on each rank; ``finish()``
        averages them.
    every : int | str
        For ``across="host"``. After this number of steps of its first rank (or a time, for example
        "200ms"), a host sends its weights. To its current weights it then adds the difference
        between the mean of all hosts' weights and the weights sent.
    on_loss : str
        If all ranks are on one host, selects the effect of the death of a rank: "end" (the other
        ranks get an error) or "continue" (they continue; needs ``ringrun --survive``).
    across : str
        For several hosts, or without shared memory. "service": servers are ranks of any host, and
        ``consistency`` holds between all ranks. "host": each host has a separate store, which suits
        a slow network; ``servers`` and ``consistency`` apply to each host's ranks.
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Parameter names for error messages, as in DistributedOptimizer.
    process_set : ProcessSet
        The ranks that take part. With several hosts, the set must contain all ranks.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class. Use it in a ``with`` statement, or
        call ``finish()`` after the last step.

    Raises
    ------
    ValueError
        Arguments are invalid, or the store has no rule for the optimizer and ``servers="all"``.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.
    UnsupportedError
        ``across="host"``, and ranks of a host share no memory.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> inner = torch.optim.SGD([weight], lr=1.0)
    >>> with hvd.ParameterServer(inner, consistency=hvd.Async()) as optimizer:
    ...     (weight * (rank + 1)).sum().backward()
    ...     _ = optimizer.step()
    >>> weight.tolist()  # minus both ranks' gradients, 1 and 2
    [-3.0, -3.0]
    """
    consistency = consistency or Async()
    rules = _rules_of(optimizer, servers)
    native = all(rule.rule != "get" for rule in rules)
    momentum = max((rule.options.get("momentum", 0.0) for rule in rules), default=0.0)
    settings = {"rules": [rule.text() for rule in rules], "consistency": consistency, "servers": servers}
    settings |= {"compensate": compensate, "every": every, "across": across}
    made, name, parameters = relaxed(
        optimizer, "ParameterServer", named_parameters, process_set, _ParameterServer, **settings
    )
    if momentum >= 0.5 and not consistency.of_step and process_set.size() > 2 and process_set.rank() == 0:
        warnings.warn(
            f"momentum={momentum} with {consistency} on {process_set.size()} ranks: stale gradients already act as "
            "momentum; use momentum=0, or a lower learning rate",
            stacklevel=2,
        )
    replica = TensorReplica(parameters)
    bounds = np.cumsum([0] + [sum(map(TensorReplica.count, group["params"])) for group in optimizer.param_groups])
    cuts = [np.cumsum([TensorReplica.count(p) for p in group["params"]]).tolist() for group in optimizer.param_groups]
    parts = [(slice(int(a), int(b)), rule) for a, b, rule in zip(bounds, bounds[1:], rules, strict=False)]
    options = StoreOptions(consistency, servers, scale, compensate, on_loss, every, across)
    what = name, process_set, replica, parts, options, None if native else cuts
    made._method = _ServerMethod(native, model, process_set, *what)
    return made
