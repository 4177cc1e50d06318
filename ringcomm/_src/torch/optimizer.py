"""DistributedOptimizer: makes the step of an optimizer use the gradients of all ranks.

`arguments` checks the arguments, `reducer` or `adasum_optimizer` reduces, `wrapped` subclasses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ringcomm._src.algorithms.registry import require_known
from ringcomm._src.base.ops import Adasum, Average, Max
from ringcomm._src.compression.compression import resolved
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch import loss_scaling, residuals
from ringcomm._src.torch.adasum_optimizer import DeltaReducer, DistributedAdasumOptimizer
from ringcomm._src.torch.arguments import (
    Settings,
    check_compression,
    check_groups,
    drops_most,
    key_of,
    names_of,
    require_host,
    warn_of_unused,
)
from ringcomm._src.torch.autograd import with_gradients as operations
from ringcomm._src.torch.closures import TakesClosures
from ringcomm._src.torch.compression import Compression, format_of, is_lossy
from ringcomm._src.torch.gradient_transforms import MomentumCorrection
from ringcomm._src.torch.reducer import GradientReducer
from ringcomm._src.torch.relaxed.delayed import delayed_optimizer
from ringcomm._src.torch.wrapped import MARK, delegating_step, require_closure, wrapped
from ringcomm._src.training.bucket_limits import bucket_limits

ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)


class _DistributedOptimizer(TakesClosures):
    """Base class that DistributedOptimizer adds to the optimizer's class to reduce gradients."""

    def synchronize(self) -> None:
        """Waits until every parameter's ``.grad`` is the reduced gradient."""
        self._follow_groups()
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Reduces the gradients, then takes the optimizer's step.

        Gradients from before a ``closure`` are reduced first, then those of each of its calls.
        ``GradScaler.step`` passes ``grad_scaler``. If any rank has an overflow, all skip the step.
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
                "reduced again, which costs time.",
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
        """Reduces gradients that precede a closure, if any rank has some. Returns True if so."""
        if self._reducer is None:
            return False
        mine = torch.tensor([self._reducer.has_gradients()], dtype=torch.int32)
        name = f"{self._reducer.settings.name}.before_closure"
        found = bool(operations.allreduce_(mine, name=name, op=Max, process_set=self.process_set))
        if found:  # the optimizer may use them before it calls the closure
            self.synchronize()
        return found

    def _waits_for_reduction(self) -> bool:
        """Returns True if step() would reduce gradients."""
        if self._reducer is None or not self._should_synchronize:
            return False
        return not self._synchronized or self._reducer.has_gradients()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Makes torch.amp.GradScaler leave unscaling and overflows to step()."""
        return self._waits_for_reduction() or bool(vars(self).get("_step_supports_amp_scaling"))

    def _scaled_step(self, scaler: Any, **kwargs: Any) -> Any:
        if self._waits_for_reduction():
            assert self._reducer is not None
            unscaled = loss_scaling.is_unscaled(scaler, self)
            self._reducer.settings.units.follow((lambda: 1.0) if unscaled else scaler.get_scale)
            if unscaled:
                self._reducer.record_changes()
            self.synchronize()
            if unscaled:
                loss_scaling.share_overflow(self, scaler, self._reducer.settings.name, self.process_set)
        self._synchronized = False
        undo = self._reducer.undo if self._reducer is not None else lambda: None
        return loss_scaling.step_if_finite(self, scaler, lambda: self._base.step(self, **kwargs), undo)

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the residuals of error feedback so far: float32 tensors by parameter name.

        Units are those of reduced gradients, without a loss scale. Collective; call it between
        steps. The state may be loaded on any number of ranks. Training then continues as if it had
        not been interrupted, except for rounding. A job of one rank ignores the state.
        """
        return {} if self._reducer is None else residuals.sum_over_ranks(self._reducer)

    def load_compression_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Loads `compression_state_dict`'s residuals. Collective; call it between steps.

        Raises
        ------
        ValueError
            A name is not that of a compressed parameter, or the number of elements differs.
        """
        if self._reducer is not None:
            residuals.restore(self._reducer, state)

    def compression_stats(self) -> list[dict[str, Any]]:
        """Returns a dict for each bucket with error feedback. Call it between steps.

        The keys are ``bucket``, ``elements``, and ``residual`` (a norm). Traffic is in `stats()`.
        """
        return [] if self._reducer is None else self._reducer.norms()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Calls the optimizer's ``zero_grad``.

        After backward without ``step()``, it drops gradients in flight: call it on all ranks.
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
    """Returns an optimizer that steps on gradients reduced over all ranks.

    Use it in place of ``optimizer``, and call ``step()`` equally often on all ranks.

    Gradients are reduced while backward computes them. To read ``.grad`` (a norm, a copy), call
    ``synchronize()`` first: until then ``.grad`` is this rank's gradient or the reduced one.

    A parameter without a gradient on some ranks counts as zeros there. A parameter without a
    gradient on all ranks keeps ``grad`` unchanged, usually None, so the optimizer skips it as in a
    single process. (Horovod sets a gradient of zeros.)

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer that is not distributed yet.
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Usually ``model.named_parameters()``, for names in messages. None: parameters are numbered.
    compression : type | WireFormat | str | dict | callable
        Format of data between hosts. ``Compression.none``, ``.fp16``, ``.bf16``; or a wire format
        with error feedback, which adds the residual to the next step's gradient:
        ``Compression.auto`` (int8 where the cost model predicts a gain), ``.int8``, ``.int4``,
        ``.onebit``, ``.ternary``, ``.topk(0.01)``, ``.threshold(0.1)``; or the name of one of these
        ("int8"). Wire formats need op Average or Sum, and leave small or one-dimensional gradients
        uncompressed. Within a host nothing is compressed unless the format has ``everywhere=True``.
        Further values: a dict from name patterns to formats, a function of name and parameter, or a
        custom compressor class (`ringcomm.torch.compression`), which sends gradients separately.
    backward_passes_per_step : int
        Number of backward passes whose gradients are added before the reduction. The sum is not
        divided by this number.
    op : Op
        ``Average``, ``Sum``, ``Min``, ``Max`` or ``Product`` over the ranks; or ``Adasum``: every
        rank steps on its local gradients, and the changes of the parameters are combined.
    gradient_predivide_factor : float
        With ``Average``, divides by this factor before the sum, and by size / factor after it.
    num_groups : int
        Older name of ``groups`` as a number.
    groups : int | list[Sequence[torch.Tensor]] | None
        Parameters to reduce together: a number of groups, or a list of lists of parameters.
    sparse_as_dense : bool
        Sends sparse gradients as dense ones, and makes them sparse again; slower at every density.
    process_set : ProcessSet
        The ranks to reduce over; on other ranks nothing is reduced.
    algorithm : str | None
        Algorithm of the all-reduces, as in `ringcomm.Communicator.allreduce` ("ring", ...). None:
        ``RINGCOMM_ALGORITHM``, or chosen by the core.
    delay : int
        1: gradients are used one step late, and are sent during the next forward and backward pass
        (Pipe-SGD, arXiv:1811.03619). This hides communication that takes no longer than
        computation. It needs a lower learning rate, ``finish()`` at the end, Average or Sum, dense
        gradients, and ``compression`` none, fp16 or bf16.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class; state, groups and defaults are the same.

    Raises
    ------
    ValueError
        Arguments do not fit together; the optimizer is distributed already; parameters are neither
        in CPU memory nor on a CUDA device; ``Compression.powersgd`` with parameters on a device.
    MismatchError
        From ``step()`` and ``synchronize()``, on every rank: ranks wrap different parameters.
    AssertionError
        From ``backward()``: more than ``backward_passes_per_step`` passes in one step.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    >>> (weight * (rank + 1)).sum().backward()  # the gradients of the ranks are 1 and 2
    >>> optimizer.step()
    >>> weight.tolist()
    [-1.5, -1.5]
    """
    if getattr(optimizer, MARK, False):
        raise ValueError(
            f"this {type(optimizer).__name__} is distributed already: its gradients would be reduced twice. Wrap an "
            "optimizer once, and use the optimizer that DistributedOptimizer returned"
        )
    compression = resolved(compression, Compression, rules=True)
    if delay:
        refused = {
            "algorithm": algorithm,
            "gradient_predivide_factor": None if gradient_predivide_factor == 1.0 else gradient_predivide_factor,
            "backward_passes_per_step": None if backward_passes_per_step == 1 else backward_passes_per_step,
        }
        return delayed_optimizer(optimizer, named_parameters, compression, op, process_set, delay, refused)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    if algorithm is not None:
        require_known("allreduce", algorithm)
        if op == Adasum:
            raise ValueError(f"op=Adasum cannot be combined with algorithm={algorithm!r}")
    process_set.session()  # raises if the set is not in use
    if num_groups != 0:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = names_of(optimizer, named_parameters)
    warn_of_unused(compression, names)
    check_groups(groups)
    check_compression(compression, op)
    for name, parameter in names:
        require_host(format_of(compression, name, parameter), parameter)  # format_of checks the format first
    distributed = process_set.included() and process_set.size() > 1
    if distributed and process_set.rank() == 0 and isinstance(optimizer, ADAMS) and drops_most(compression, names):
        warnings.warn(
            f"compression={compression} drops most of each gradient. Adam divides by the variance of what remains, so "
            "it converges worse. Use int8 or int4, or SGD (docs/compression.md)",
            stacklevel=2,
        )
    adasum = op == Adasum and distributed
    made = wrapped(optimizer, DistributedAdasumOptimizer if adasum else _DistributedOptimizer)
    made._parameter_names = {p: name for name, p in names}
    made.backward_passes_per_step = backward_passes_per_step
    made.op = op
    made.gradient_predivide_factor = gradient_predivide_factor
    made.sparse_as_dense = sparse_as_dense
    made.process_set = process_set
    made._synchronized, made._reducer = False, None
    if distributed:
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
            settings.transforms.append(MomentumCorrection(settings))
        made._reducer = DeltaReducer(settings, names) if adasum else GradientReducer(settings, names)
    return made
