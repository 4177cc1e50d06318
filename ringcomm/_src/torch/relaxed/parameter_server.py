"""ParameterServer: an optimizer that applies its steps to shared weights, on the rank that has a gradient."""

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
from ringcomm._src.torch.wrapped import taking_the_step


def _adam(group: Mapping[str, Any], decoupled: bool) -> updates.Update:
    if group["amsgrad"]:
        raise ValueError("amsgrad=True: the store's Adam has no such state")
    decoupled = decoupled or bool(group.get("decoupled_weight_decay"))
    keys = ("lr", "betas", "eps", "weight_decay", "maximize")
    return updates.Adam(**{key: group[key] for key in keys}, decoupled=decoupled)


def _rmsprop(group: Mapping[str, Any]) -> updates.Update:
    if group["centered"]:
        raise ValueError("centered=True: the store's RMSprop has no such state")
    keys = ("lr", "alpha", "eps", "weight_decay", "momentum")
    return updates.RMSprop(**{key: group[key] for key in keys}, maximize=group.get("maximize", False))


def _adagrad(group: Mapping[str, Any]) -> updates.Update:
    if group["initial_accumulator_value"]:
        raise ValueError("initial_accumulator_value: the store's Adagrad begins with zeros")
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
    """Returns the store's rule for a parameter group. Raises ValueError if the store has none."""
    make = _RULES.get(kind)
    if make is None:
        known = ", ".join(one.__name__ for one in _RULES)
        raise ValueError(f"ParameterServer: the store has rules of {known}; not of {kind.__name__}")
    return make(group)


def _rules_of(optimizer: torch.optim.Optimizer, servers: Any) -> list[updates.Update]:
    """Returns the rules of the optimizer's groups.

    If a group has no rule and there are dedicated servers, these take the steps in Python.
    """
    try:
        return [rule_of(type(optimizer), group) for group in optimizer.param_groups]
    except ValueError as error:
        if servers == "all":
            raise ValueError(f"{error}. Dedicated servers (servers=, and serve() there) take any optimizer") from None
        warnings.warn(
            f"{error}: servers {servers} apply it in Python, and must call serve(); shards are cut between tensors",
            stacklevel=3,
        )
        return [updates.Update("get") for _ in optimizer.param_groups]


class _Served(Store):
    """The method behind ParameterServer. ``native``: the store has the optimizer's rule."""

    replica: TensorReplica

    def __init__(self, native: bool, model: torch.nn.Module | None, everybody: Any, *what: Any) -> None:
        super().__init__(*what)
        self._native, self._everybody = native, everybody
        self._gradients = np.empty_like(self.weights)
        self._statistics = statistics_of(model)

    def step_of(self, optimizer: Any, counted: bool) -> None:
        self.replica.read_gradients(self._gradients)
        for number, group in enumerate(optimizer.param_groups if self._native else ()):
            options = dict(rule_of(optimizer._base, group).options)
            self.set_options(number, options.pop("lr"), **options)
        self.step(self._gradients if counted else None)

    def _finish(self, optimizer: Any) -> None:  # type: ignore[override]
        by_hand = not self._native and self.shards[0].own() is not None
        super()._finish((lambda: serve(optimizer, self)) if by_hand else lambda: None)
        if self._statistics and not self.workers.lost():
            replica = TensorReplica(self._statistics)
            flat = replica.now(0)
            allreduce_(flat, op=Average, name=f"{self.name}.statistics", process_set=self._everybody)
            replica.write(0, flat)


class _ParameterServer(RelaxedOptimizer):
    """Base class that ParameterServer adds to the optimizer's class."""

    @taking_the_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Pushes this rank's gradients to the store, waits as the consistency requires, and reads the weights.

        After an overflow (``grad_scaler``) this rank's gradients are skipped.
        """
        loss, counted = evaluated(self, closure, grad_scaler)
        self._method.step_of(self, counted)
        return loss

    def finish(self) -> None:
        """Ends this rank's steps. Returns once all ranks have ended theirs; then all hold the store's weights.

        Collective. Further calls do nothing.
        """
        self._method.finish(self)

    def serve(self) -> None:
        """Serves in place of steps, on a dedicated server. Returns when all ranks have finished,
        like :meth:`finish`."""
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
    """Returns an optimizer; its ``step()`` pushes gradients to shared weights and reads the current weights.

    No rank waits for another, unless ``consistency`` requires it::

        optimizer = hvd.ParameterServer(torch.optim.SGD(model.parameters(), lr=0.1), consistency=hvd.SSP(4))
        with optimizer:
            ...

    The optimizer's rule is applied natively, with its options at the time of each push. (So schedulers
    work: drive them by ``optimizer.updates``.) On a server's host, the pushing rank applies it, under
    locks of 16 KB in shared memory, without a message. For ranks of other hosts, the server's worker
    thread applies it, independent of its script. SGD, Adam, AdamW, Adagrad and RMSprop have such rules.
    Steps of any other optimizer are taken in Python by dedicated servers
    (``if rank in servers: optimizer.serve()``).

    The optimizer's state is in the store; weight decay acts on the store's weights. With p ranks the
    weights get p updates in the time of one rank's update. Begin with the learning rate of one rank, and
    without momentum. (With Async, p ranks and momentum m the usable rate is about (1 - m)/p of it:
    Mitliagkas et al., arXiv:1605.09774.)

    Source: Dean et al., NIPS 2012; Li et al., OSDI 2014; consistencies:
    `ringcomm._src.decentralized.consistency`.

    Args:
        optimizer: of one of these classes, or any other with dedicated servers: then the servers' options apply.
        servers: ranks that hold the weights in their memory: "all", a number of ranks, or a list. They train
            like the other ranks, or call ``optimizer.serve()`` instead.
        consistency: ``hvd.Async()`` (the default), ``hvd.SSP(s)``, ``hvd.SoftSync(S)``, ``hvd.Sync()``,
            ``hvd.Backup(S)``.
        scale: "inverse": gradients that are t updates late are multiplied by 1/t; or a function of t.
        compensate: strength of delay compensation (DC-ASGD, arXiv:1609.08326), such as 0.04.
        model: its floating-point buffers (BatchNorm's statistics) are separate on each rank; ``finish()``
            averages them.
        every: for ``across="host"``: after this number of steps of a host's first rank (or a time such as
            "200ms"), the hosts' weights become the mean of all: the difference between the mean and the
            weights sent is added.
        on_loss: on one host: "end", or "continue": ranks continue after another rank has died, if the
            launcher lets them.
        across: with several hosts (or without shared memory) "service": servers are ranks of any host, and
            ``consistency`` holds between all ranks. "host": each host has a separate store, which suits a
            slow network; ``servers`` and ``consistency`` apply to each host's ranks.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks; with several hosts, all.

    Raises:
        ValueError: arguments are invalid; the optimizer has no native rule, and ``servers="all"``.
        MismatchError: ranks differ. UnsupportedError: "host", and ranks of a host share no memory.
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
            f"momentum={momentum} with {consistency} on {process_set.size()} ranks: stale gradients act as momentum "
            "already; take none, or a lower learning rate",
            stacklevel=2,
        )
    replica = TensorReplica(parameters)
    bounds = np.cumsum([0] + [sum(map(TensorReplica.count, group["params"])) for group in optimizer.param_groups])
    cuts = [
        np.cumsum([TensorReplica.count(one) for one in group["params"]]).tolist() for group in optimizer.param_groups
    ]
    parts = [(slice(int(a), int(b)), rule) for a, b, rule in zip(bounds, bounds[1:], rules, strict=False)]
    options = StoreOptions(consistency, servers, scale, compensate, on_loss, every, across)
    what = name, process_set, replica, parts, options, None if native else cuts
    made._method = _Served(native, model, process_set, *what)
    return made
