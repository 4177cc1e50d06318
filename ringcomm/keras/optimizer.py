"""Keras optimizers whose steps use the gradients of all ranks, one wrapper for all backends.

The optimizer that is given becomes of a subclass of its own class, with the same name and module: a model that is
saved with it loads in plain Keras. Gradients are reduced where they enter ``apply``, before clipping and weight decay;
with ``backward_passes_per_step`` Keras' own accumulation adds them up, and the sums are reduced.
"""

from __future__ import annotations

from typing import Any

import keras

from ringcomm.gradient_lists import GradientReduction
from ringcomm.keras.backends import Compression, reduction_class
from ringcomm.ops import Average
from ringcomm.process_sets import ProcessSet, global_process_set

MARK = "_ringcomm_reduction"


class _Distributed:
    """What is added to an optimizer's class."""

    _ringcomm_reduction: GradientReduction
    _ringcomm_base: Any
    _ringcomm_passes: int

    def register_local_var(self, variable: Any) -> None:
        """The gradient of this variable stays on its rank."""
        self._ringcomm_reduction.keep_local(variable)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)  # type: ignore[attr-defined]
        grads = list(grads)
        if self._ringcomm_passes > 1:
            self.__dict__["_ringcomm_variables"] = [
                one for one, gradient in zip(variables, grads, strict=True) if gradient is not None
            ]
        else:
            grads = self._ringcomm_reduction(grads, variables)
        return self._ringcomm_base.apply(self, grads, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        """Called with what has been added up, where a step is taken."""
        if self._ringcomm_passes > 1:
            grads = self._ringcomm_reduction(list(grads), self.__dict__["_ringcomm_variables"])
        return self._ringcomm_base._clip_gradients(self, grads)


class _DistributedLossScale(_Distributed):
    """Overflow is looked for in what all ranks get: they agree on it."""

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        grads = self._ringcomm_reduction(list(grads), self._trainable_variables)  # type: ignore[attr-defined]
        return self._ringcomm_base.stateless_apply(self, optimizer_variables, grads, trainable_variables)


def is_distributed(optimizer: Any) -> bool:
    return hasattr(type(optimizer), "_ringcomm_base")


def _swap(optimizer: Any, reduction: GradientReduction, passes: int) -> Any:
    base = type(optimizer)
    loss_scale = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    own: dict[str, Any] = {}
    for source in (_Distributed, *([_DistributedLossScale] if loss_scale else [])):
        own |= {key: value for key, value in vars(source).items() if key not in ("__dict__", "__weakref__")}
    own |= {"_ringcomm_base": base, "__module__": base.__module__, "__qualname__": base.__qualname__}
    # Keras looks a class up by the object under its registered name: this one is saved as its base is.
    made: Any = type(base.__name__, (base,), own)
    optimizer.__class__ = made
    optimizer.__dict__.update({MARK: reduction, "_ringcomm_passes": passes})
    return optimizer


def undistributed(optimizer: Any) -> GradientReduction:
    """Makes it what it was; gives what it had."""
    reduction = optimizer.__dict__.pop(MARK)
    optimizer.__class__ = type(optimizer)._ringcomm_base
    return reduction


def with_loss_scale_inside(optimizer: Any) -> Any:
    """Where Keras has put a LossScaleOptimizer around a distributed one, that becomes the distributed one: one rank's
    overflow would else keep it from a reduction that the others wait for."""
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is None or is_distributed(optimizer) or not is_distributed(inner):
        return optimizer
    return _swap(optimizer, undistributed(inner), 1)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    algorithm: str | None = None,
) -> Any:
    """Makes ``optimizer`` one whose steps use the gradients of all ranks.

    Args:
        optimizer: a ``keras.optimizers.Optimizer`` that has not taken a step and is not distributed already. It is
            changed in place and returned; under the policy ``mixed_float16`` within a LossScaleOptimizer.
        name: of the operations; None: the optimizer's.
        device_dense, device_sparse: accepted because Horovod has them; not needed.
        compression: what travels between hosts: ``Compression.none``, ``.fp16``, ``.bf16``.
        sparse_as_dense: ``tf.IndexedSlices`` become dense and are reduced; else their values and indices are gathered.
        gradient_predivide_factor: with ``Average``, divides by this before the sum, and by size / this after it.
        op: ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``, of the gradients.
        backward_passes_per_step: gradients of so many passes add up on their rank before they are reduced.
        average_aggregated_gradients: they are divided by it.
        num_groups, groups: reduce in so many operations, or these lists of variables together; None: all together.
        process_set: the ranks to reduce over; on others nothing is reduced.
        scale_local_gradients: gradients of local variables (``register_local_var``) are divided by the ranks.
        algorithm: of the all-reduces; None: chosen.

    Raises:
        ValueError: for arguments that do not fit, and for an optimizer that is distributed already.
        MismatchError: (in ``fit`` on TensorFlow: ``tf.errors.InvalidArgumentError`` with its text) ranks have different
            gradients.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(f"DistributedOptimizer takes a Keras optimizer, not {type(optimizer).__name__}")
    if is_distributed(optimizer) or is_distributed(getattr(optimizer, "inner_optimizer", None)):
        raise ValueError(f"this {type(optimizer).__name__} is distributed already: wrap an optimizer once")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if not scaled and keras.config.dtype_policy().name == "mixed_float16":
        optimizer, scaled = keras.optimizers.LossScaleOptimizer(optimizer), True
    innermost = optimizer.inner_optimizer if scaled else optimizer
    passes = backward_passes_per_step
    if passes > 1:
        if innermost.gradient_accumulation_steps not in (None, passes):
            raise ValueError("give backward_passes_per_step or gradient_accumulation_steps, not both")
        innermost.gradient_accumulation_steps = passes
    passes = innermost.gradient_accumulation_steps or 1
    called = name or f"optimizer.{innermost.name}"
    among = num_groups, groups, process_set, scale_local_gradients, algorithm
    reduction = reduction_class()(called, op, compression, sparse_as_dense, gradient_predivide_factor, *among)
    if backward_passes_per_step > 1 and not average_aggregated_gradients:
        reduction.factor = float(backward_passes_per_step)  # Keras has divided by it
    return _swap(optimizer, reduction, 1 if scaled else passes)


def PartialDistributedOptimizer(optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any) -> Any:
    """:func:`DistributedOptimizer`, but for the variables of ``local_layers`` (a Keras layer or several, built), whose
    gradients stay on their rank."""
    made = DistributedOptimizer(optimizer, *arguments, **options)
    made._ringcomm_reduction.keep_layers_local(local_layers)
    return made
