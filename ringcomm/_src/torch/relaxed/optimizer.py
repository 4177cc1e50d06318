"""What is added to an optimizer's class where ranks exchange weights from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.decentralized.method import Exchanging
from ringcomm._src.decentralized.periodic import agreed_text
from ringcomm._src.decentralized.replicas import next_number
from ringcomm._src.torch import loss_scaling
from ringcomm._src.torch.arguments import names_of
from ringcomm._src.torch.relaxed.replica import TensorReplica, statistics_of, texts_of
from ringcomm._src.torch.wrapped import MARK, Wrapper, taking_the_step, wrapped
from ringcomm._src.training.plan_agreement import require_equal_texts

_KEY = "relaxed"  # in a state_dict


class RelaxedOptimizer(Exchanging, Wrapper):
    """An optimizer that steps on this rank's gradients, and exchanges when that is due. Use it in a ``with`` statement,
    or call ``finish()`` at the end: ranks may make different numbers of steps."""

    @taking_the_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Takes the optimizer's step, and exchanges what is due then. An overflow (``grad_scaler`` is given by
        ``torch.amp.GradScaler.step``) leaves out this rank's own step alone, which is counted all the same."""
        if grad_scaler is not None:
            loss_scaling.unscale(self, grad_scaler)
        if closure is None:
            self._gradients_made(grad_scaler)
            arguments: tuple[Any, ...] = ()
        else:
            arguments = (self._evaluating(closure),)

        def take() -> Any:
            return self._take(*arguments, **kwargs)

        result = take() if grad_scaler is None else loss_scaling.step_if_finite(self, grad_scaler, take)
        before = self._method.exchanges
        self._method.stepped()
        if self._method.exchanges != before:
            self._exchanged()
        return result

    _step_supports_amp_scaling = True  # torch.amp.GradScaler calls step() after an overflow too

    def _evaluating(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self._gradients_made(None)
            return loss

        return evaluate

    def _take(self, *arguments: Any, **kwargs: Any) -> Any:
        return self._base.step(self, *arguments, **kwargs)

    def _gradients_made(self, scaler: Any) -> None:
        """The step is about to be taken; gradients are unscaled."""

    def _exchanged(self) -> None:
        """Weights have been."""

    def exchange_now(self) -> None:
        """Exchanges everything between all ranks, whatever is due. Collective."""
        self._method.exchange_now()

    @property
    def has_own_model(self) -> bool:
        """Whether the method's model is something of its own (an anchor, a centre): any rank may look at it alone."""
        return self._method.has_own_model

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and this rank's part of the method under "relaxed": to go on exactly, on as many ranks. To
        go on on others, save ``global_weights()`` and start anew."""
        return self._base.state_dict(self) | {_KEY: self._method.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes up what ``state_dict`` gave, or a plain optimizer's."""
        self._base.load_state_dict(self, {key: value for key, value in state_dict.items() if key != _KEY})
        if _KEY in state_dict:
            self._method.load(state_dict[_KEY])

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        if optimizer is self._inner:
            raise AssertionError(
                f"{type(optimizer).__name__}.step() would be a step of this rank alone, which is never exchanged: step "
                "the optimizer that was made of it"
            )
        if optimizer is self and self._groups_changed():
            raise UnsupportedError(
                "the optimizer's parameters are others than when it was wrapped: add and remove them before that"
            )

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Raises UnsupportedError: replicas are cut up when the optimizer is wrapped."""
        raise UnsupportedError("add parameter groups to the optimizer before it is wrapped")


def evaluated(optimizer: Any, closure: Callable[[], Any] | None, scaler: Any) -> tuple[Any, bool]:
    """The closure's loss, if there is one; and whether this rank's gradients, which are unscaled then, are finite."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if scaler is None:
        return loss, True
    loss_scaling.unscale(optimizer, scaler)
    return loss, not loss_scaling.found_in(optimizer, scaler)


def relaxed(
    optimizer: torch.optim.Optimizer,
    who: str,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    process_set: Any,
    additions: type[RelaxedOptimizer] = RelaxedOptimizer,
    **settings: Any,
) -> tuple[Any, str, list[torch.Tensor]]:
    """The optimizer again, as one of a subclass of its class; a name for what it exchanges; its parameters. Collective:
    ranks compare parameters and settings. ``who``: asks for it.

    Raises:
        ValueError: it is distributed already, or an LBFGS, or takes parameters that are not of floating dtypes.
        MismatchError: on every rank, if they differ.
    """
    if getattr(optimizer, MARK, False):
        raise ValueError(f"this {type(optimizer).__name__} is distributed already: wrap the optimizer itself")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(f"{who}: LBFGS draws conclusions from its steps, which exchanges make wrong; take another")
    names = names_of(optimizer, named_parameters)
    for name, parameter in names:
        if not (parameter.is_floating_point() or parameter.is_complex()) or parameter.is_sparse:
            raise ValueError(f"{who}: '{name}' is {parameter.dtype}; weights that are averaged are floating, and dense")
    process_set.require_rank()
    name = f"relaxed{next_number(process_set)}"
    require_equal_texts([agreed_text(method=who, **settings), *texts_of(names)], name, process_set, who)
    return wrapped(optimizer, additions), name, [parameter for _, parameter in names]


def replica_of(parameters: Sequence[torch.Tensor], model: torch.nn.Module | None, fragments: int = 1) -> TensorReplica:
    return TensorReplica(parameters, statistics_of(model), fragments)
