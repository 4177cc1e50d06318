"""The base class of optimizers that exchange weights periodically, and their checks.

LocalSGD, EASGD, DiLoCo, Gossip and similar functions call `relaxed`, and then set the method that
exchanges.
"""

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
from ringcomm._src.torch.wrapped import MARK, Wrapper, delegating_step, wrapped
from ringcomm._src.training.plan_agreement import require_equal_texts

_KEY = "relaxed"  # key in a state_dict


class RelaxedOptimizer(Exchanging, Wrapper):
    """An optimizer that steps on this rank's gradients, and exchanges data when that is due.

    Use it in a ``with`` statement, or call ``finish()`` at the end. Until all ranks have finished,
    this rank then takes part in the exchanges of ranks that make more steps.
    """

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Takes the optimizer's step, then exchanges data if that is due.

        ``torch.amp.GradScaler.step`` passes ``grad_scaler``. After an overflow only this rank skips
        its step. The skipped step still counts toward the next exchange.
        """
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

    _step_supports_amp_scaling = True  # torch.amp.GradScaler then calls step() after an overflow too

    def _evaluating(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self._gradients_made(None)
            return loss

        return evaluate

    def _take(self, *arguments: Any, **kwargs: Any) -> Any:
        return self._base.step(self, *arguments, **kwargs)

    def _gradients_made(self, scaler: Any) -> None:
        """Called before the step is taken, with unscaled gradients."""

    def _exchanged(self) -> None:
        """Called after weights were exchanged."""

    def exchange_now(self) -> None:
        """Exchanges everything between all ranks, even if it is not due. Collective."""
        self._method.exchange_now()

    @property
    def has_own_model(self) -> bool:
        """True if the global model is stored: an anchor, a centre, or shared weights.

        A single rank may then enter ``global_weights()``. Otherwise the global model is the mean of
        all ranks' weights, and all ranks must enter it.
        """
        return self._method.has_own_model

    def state_dict(self) -> dict[str, Any]:
        """Returns the optimizer's state_dict; its entry "relaxed" is this rank's method state.

        Training continues exactly if the number of ranks is the same. For another number, save the
        model within ``global_weights()``, and make a new optimizer.
        """
        return self._base.state_dict(self) | {_KEY: self._method.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a result of ``state_dict``, or the state_dict of a plain optimizer."""
        self._base.load_state_dict(self, {key: value for key, value in state_dict.items() if key != _KEY})
        if _KEY in state_dict:
            self._method.load(state_dict[_KEY])

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        if optimizer is self._inner:
            raise AssertionError(
                f"{type(optimizer).__name__}.step() would take a step that is never exchanged with other ranks: call "
                "step() of the optimizer that wraps this one"
            )
        if optimizer is self and self._groups_changed():
            raise UnsupportedError(
                "the optimizer's parameters have changed since it was wrapped: add and remove parameters before that"
            )

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Raises UnsupportedError: replicas are laid out when the optimizer is wrapped."""
        raise UnsupportedError("add parameter groups to the optimizer before it is wrapped")


def evaluated(optimizer: Any, closure: Callable[[], Any] | None, scaler: Any) -> tuple[Any, bool]:
    """Returns the closure's loss, if there is one, and True if this rank's gradients are finite.

    With a scaler the gradients are unscaled first.
    """
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if scaler is None:
        return loss, True
    loss_scaling.unscale(optimizer, scaler)
    return loss, not loss_scaling.has_overflow(optimizer, scaler)


def relaxed(
    optimizer: torch.optim.Optimizer,
    method: str,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    process_set: Any,
    additions: type[RelaxedOptimizer] = RelaxedOptimizer,
    **settings: Any,
) -> tuple[Any, str, list[torch.Tensor]]:
    """Returns the wrapped optimizer, a name for its exchanges, and its parameters.

    Collective: ranks compare parameters and settings. ``method``: name of the public function, for
    errors.

    Raises
    ------
    ValueError
        The optimizer is distributed already, or an LBFGS, or has parameters of dtypes that are not
        floating-point.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.
    """
    if getattr(optimizer, MARK, False):
        raise ValueError(f"this {type(optimizer).__name__} is distributed already: wrap the optimizer itself")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            f"{method} does not support LBFGS, which needs steps without exchanges between them: use another optimizer"
        )
    names = names_of(optimizer, named_parameters)
    for name, parameter in names:
        if not (parameter.is_floating_point() or parameter.is_complex()) or parameter.is_sparse:
            raise ValueError(
                f"{method}: '{name}' is {parameter.dtype}; weights must be floating-point or complex, and dense"
            )
    process_set.require_rank()
    name = f"relaxed{next_number(process_set)}"
    require_equal_texts([agreed_text(method=method, **settings), *texts_of(names)], name, process_set, method)
    return wrapped(optimizer, additions), name, [parameter for _, parameter in names]


def replica_of(parameters: Sequence[torch.Tensor], model: torch.nn.Module | None, fragments: int = 1) -> TensorReplica:
    return TensorReplica(parameters, statistics_of(model), fragments)
