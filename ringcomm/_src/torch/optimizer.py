"""An optimizer whose step uses the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ringcomm._src.algorithms.registry import require_known
from ringcomm._src.base.ops import Adasum, Average, Max
from ringcomm._src.compression.compression import resolved
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch import held_back, loss_scaling
from ringcomm._src.torch.adasum_optimizer import DeltaReducer, DistributedAdasumOptimizer
from ringcomm._src.torch.arguments import (
    Settings,
    check_compression,
    check_groups,
    key_of,
    leaves_much_out,
    names_of,
    require_host,
    warn_of_unused,
)
from ringcomm._src.torch.autograd import with_gradients as operations
from ringcomm._src.torch.closures import TakesClosures
from ringcomm._src.torch.compression import Compression, format_of, is_lossy
from ringcomm._src.torch.reducer import GradientReducer
from ringcomm._src.torch.relaxed.delayed import late_optimizer
from ringcomm._src.torch.travel import MomentumCorrection
from ringcomm._src.torch.wrapped import (
    MARK,
    require_closure,
    taking_the_step,
    wrapped,
)
from ringcomm._src.training.bucket_limits import bucket_limits

ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)


class _DistributedOptimizer(TakesClosures):
    """What DistributedOptimizer adds to an optimizer's class, where gradients are reduced."""

    def synchronize(self) -> None:
        """Waits until the gradients are reduced; then ``.grad`` of every parameter is the same on all ranks."""
        self._follow_groups()
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @taking_the_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Reduces the gradients, then takes the optimizer's step.

        The gradients of a ``closure`` are reduced each time it is called, and those made before it beforehand.
        ``grad_scaler`` is given by ``torch.amp.GradScaler.step``: then gradients are unscaled, and the step is left out
        on all ranks if any of them had an overflow.
        """
        if grad_scaler is not None:
            return self._scaled_step(grad_scaler, **kwargs)
        require_closure(closure)
        if not self._should_synchronize:
            self._synchronized = False
            return self._base.step(self, self._evaluating(closure), **kwargs)
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after synchronize(): the gradients are "
                "reduced once more, at a cost.",
                stacklevel=2,
            )
        if closure is None:
            self.synchronize()
            self._synchronized = False
            return self._base.step(self, **kwargs)
        self._synchronized = self._reduced_anywhere()
        result = self._base.step(self, self._evaluating(closure), **kwargs)
        self._synchronized = False
        return result

    def _reduced_anywhere(self) -> bool:
        """Reduces gradients that the script has made before a step with a closure, if any rank has some: the optimizer
        may use them before it calls the closure. Whether there were any."""
        if self._reducer is None:
            return False
        mine = torch.tensor([self._reducer.has_gradients()], dtype=torch.int32)
        name = f"{self._reducer.settings.name}.before_closure"
        found = bool(operations.allreduce_(mine, name=name, op=Max, process_set=self.process_set))
        if found:
            self.synchronize()
        return found

    def _waits_for_reduction(self) -> bool:
        """Whether step() would reduce gradients that have not been reduced."""
        if self._reducer is None or not self._should_synchronize:
            return False
        return not self._synchronized or self._reducer.has_gradients()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Tells torch.amp.GradScaler to leave unscaling and overflows to step()."""
        return self._waits_for_reduction() or bool(vars(self).get("_step_supports_amp_scaling"))

    def _scaled_step(self, scaler: Any, **kwargs: Any) -> Any:
        if self._waits_for_reduction():
            assert self._reducer is not None
            unscaled = loss_scaling.is_unscaled(scaler, self)
            self._reducer.settings.units.follow((lambda: 1.0) if unscaled else scaler.get_scale)
            if unscaled:
                self._reducer.told_of_changes()
            self.synchronize()
            if unscaled:
                loss_scaling.share_overflow(self, scaler, self._reducer.settings.name, self.process_set)
        self._synchronized = False
        leave_out = self._reducer.undo if self._reducer is not None else lambda: None
        return loss_scaling.step_if_finite(self, scaler, lambda: self._base.step(self, **kwargs), leave_out)

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """What encoders have left out of gradients so far (``compression=`` with error feedback): float32, by
        parameter, measured as reduced gradients are, without a loss scale. Collective, between steps. It may be loaded
        on any number of ranks, and training then goes on as if it had not been interrupted, but for rounding; one rank
        alone, which encodes nothing, drops it."""
        return {} if self._reducer is None else held_back.collected(self._reducer)

    def load_compression_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes up what :meth:`compression_state_dict` gave; collective, between steps. The first rank owes all of it.

        Raises:
            ValueError: for names that are no parameters', or other numbers of elements.
        """
        if self._reducer is not None:
            held_back.restore(self._reducer, state)

    def compression_stats(self) -> list[dict[str, Any]]:
        """Returns one dict for each bucket of gradients that this rank encodes with error feedback. Call it between steps.

        Its keys are ``bucket``, ``elements``, and ``residual``, the norm of the residual. Traffic is in
        ``ringcomm.stats()``.
        """
        return [] if self._reducer is None else self._reducer.norms()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own.

        After a backward pass without ``step()`` it drops what has been reduced of it; call it on all ranks then.
        """
        if self._reducer is not None:
            self._reducer.discard()
        self._base.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        if self._reducer is not None:
            self._reducer.discard()
        self._synchronized = False
        self._should_synchronize = True
        self._base.load_state_dict(self, *args, **kwargs)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
    delay: int = 0,
) -> Any:
    """An optimizer like ``optimizer`` whose ``step()`` uses gradients reduced over all ranks.

    It is of a subclass of the optimizer's class and shares its state, parameter groups and defaults; use it in its
    place. Gradients are reduced while backward makes them: to read ``.grad`` (a norm, a copy), call ``synchronize()``
    first, for between backward and that it holds this rank's gradient or the reduced one. Call ``step()`` equally often
    on all ranks.

    A parameter that has no gradient on some ranks counts as zeros there. One that has none on any rank keeps ``grad``
    as it was, None mostly, so that the optimizer leaves it alone as it would in one process (Horovod gives it a
    gradient of zeros).

    Args:
        optimizer: any ``torch.optim.Optimizer`` that is not distributed already.
        named_parameters: usually ``model.named_parameters()``; names for messages. None: numbered.
        compression: what travels between hosts: ``Compression.none``, ``.fp16``, ``.bf16``; a wire format that loses
            more, and adds what it has lost to the next step's gradients: ``Compression.auto`` (int8 where the
            network's model says that it pays), ``Compression.int8``, ``.int4``, ``.onebit``, ``.ternary``,
            ``.topk(0.01)``, ``.threshold(0.1)`` (op Average or Sum; gradients of one dimension, and small ones, travel
            as they are; on one host nothing is compressed unless the format says ``everywhere=True``); the name of one
            of these ("int8"); a dict from patterns of names to such, or a function of name and parameter; or a
            compressor class of your own, whose gradients travel one by one (`ringcomm.torch.compression`).
        backward_passes_per_step: gradients of so many passes add up locally before they are reduced. They are not
            divided by it.
        op: ``Average``, ``Sum``, ``Min``, ``Max`` or ``Product`` over the ranks; or ``Adasum``, which is not of
            gradients: every rank takes the step on its own, and the changes of the parameters are combined
            (`ringcomm._src.torch.adasum_optimizer`).
        gradient_predivide_factor: with ``Average``, divides by this before the sum, and by size / this after it.
        num_groups: the older name of ``groups`` as a number.
        groups: reduce these parameters together: how many groups to make, or a list of lists of parameters.
        sparse_as_dense: sparse gradients travel dense, and become sparse again.
        process_set: the ranks to reduce over; on others nothing is reduced.
        algorithm: of the all-reduces ("ring", "butterfly", ..., as in `ringcomm.Communicator.allreduce`); None: as
            ``RINGCOMM_ALGORITHM`` says, or chosen.
        delay: 1: gradients come one step late, and travel during the whole of the next forward and backward pass
            (Pipe-SGD, arXiv:1811.03619): a network that is as slow as computing costs nothing, for a lower learning
            rate. Call ``finish()`` at the end. With Average or Sum, dense, ``compression`` none, fp16 or bf16.

    Raises:
        ValueError: for arguments that do not fit; for an optimizer that is distributed already; for parameters that
            are neither in CPU memory nor on a CUDA device; for ``Compression.powersgd`` of parameters on a device.

    ``step()`` and ``synchronize()`` raise MismatchError on every rank if ranks wrap different parameters.
    ``backward()`` raises AssertionError if it is called more often than ``backward_passes_per_step`` without
    ``step()`` or ``zero_grad()``.
    """
    if getattr(optimizer, MARK, False):
        raise ValueError(
            f"this {type(optimizer).__name__} is distributed already: its gradients would be reduced twice. Wrap an "
            "optimizer once, and use what DistributedOptimizer returned"
        )
    compression = resolved(compression, Compression, rules=True)
    if delay:
        refused = {
            "algorithm": algorithm,
            "gradient_predivide_factor": None if gradient_predivide_factor == 1.0 else gradient_predivide_factor,
            "backward_passes_per_step": None if backward_passes_per_step == 1 else backward_passes_per_step,
        }
        return late_optimizer(optimizer, named_parameters, compression, op, process_set, delay, refused)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    if algorithm is not None:
        require_known("allreduce", algorithm)
        if op == Adasum:
            raise ValueError(f"op=Adasum is an algorithm of its own: it cannot run as {algorithm!r}")
    process_set.session()  # refuses one that is not in use
    if num_groups != 0:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = names_of(optimizer, named_parameters)
    warn_of_unused(compression, names)
    check_groups(groups)
    check_compression(compression, op)
    for name, parameter in names:
        require_host(format_of(compression, name, parameter), parameter)  # the former refuses what is no format
    together = process_set.included() and process_set.size() > 1
    if together and process_set.rank() == 0 and isinstance(optimizer, ADAMS) and leaves_much_out(compression, names):
        warnings.warn(
            f"compression={compression} leaves much out of gradients, which Adam divides by their variance: the loss "
            "suffers. Take int8 or int4, or SGD (docs/compression.md)",
            stacklevel=2,
        )
    adasum = op == Adasum and together
    made = wrapped(optimizer, DistributedAdasumOptimizer if adasum else _DistributedOptimizer)
    made._parameter_names = {p: name for name, p in names}
    made.backward_passes_per_step = backward_passes_per_step
    made.op = op
    made.gradient_predivide_factor = gradient_predivide_factor
    made.sparse_as_dense = sparse_as_dense
    made.process_set = process_set
    made._synchronized, made._reducer = False, None
    if together:
        settings = Settings(
            op,
            gradient_predivide_factor,
            compression,
            backward_passes_per_step,
            groups,
            sparse_as_dense,
            process_set,
            bucket_limits(),
            algorithm,
            key=key_of(names),
        )
        if is_lossy(compression):
            settings.before_travel.append(MomentumCorrection(settings))
        made._reducer = DeltaReducer(settings, names) if adasum else GradientReducer(settings, names)
    return made
