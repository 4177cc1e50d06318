"""Keras optimizers that reduce gradients over all ranks before each step, with one wrapper for all backends.

The wrapper changes the optimizer's class to a subclass with the same name and module. So a model saved with it loads in
plain Keras. Gradients are reduced at the start of ``apply``, before clipping and weight decay. With
``backward_passes_per_step``, Keras accumulates gradients and the wrapper reduces the sums.
"""

from __future__ import annotations

import gc
from functools import cache, wraps
from typing import Any

import keras
from keras.src.saving import object_registration

from ringcomm._src.base.ops import Average
from ringcomm._src.keras.backends import Compression, reduction_class
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.gradient_lists import GradientReduction, unnumbered


class _Distributed:
    """The methods that are added to an optimizer's class.

    Copies of the optimizer are distributed too: by deepcopy, pickle, from_config, and by serialize and deserialize
    within this process.
    """

    _ringcomm_reduction: GradientReduction
    _ringcomm_base: Any
    _ringcomm_passes: int

    def register_local_var(self, variable: Any) -> None:
        """Excludes the gradient of this variable from the reduction."""
        self._ringcomm_reduction.keep_local(variable)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)  # type: ignore[attr-defined]
        grads = list(grads)
        if self._ringcomm_passes > 1 and not self._ringcomm_reduction.applying:
            overwritten = [getattr(one, "overwrite_with_gradient", False) for one in variables]
            there = [g is not None and not own for g, own in zip(grads, overwritten, strict=True)]
            self.__dict__["_ringcomm_sums"] = variables, there
            return self._ringcomm_base.apply(self, grads, trainable_variables)
        with self._ringcomm_reduction.once(grads, variables) as reduced:
            return self._ringcomm_base.apply(self, reduced, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        """Reduces the sums of several passes: Keras calls this once a step, with the sums."""
        if self._ringcomm_passes == 1 or self._ringcomm_reduction.applying:
            return self._ringcomm_base._clip_gradients(self, grads)
        variables, there = self.__dict__["_ringcomm_sums"]
        sums = iter(grads)
        with self._ringcomm_reduction.once([next(sums) if one else None for one in there], variables) as reduced:
            return self._ringcomm_base._clip_gradients(self, [one for one in reduced if one is not None])

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._ringcomm_base.get_config(self)
        return config | {"name": _Name(config["name"], self._ringcomm_reduction, self._ringcomm_passes)}

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        name, base = config["name"], cls._ringcomm_base
        made = base.from_config({**config, "name": str(name)}, *args, **kwargs)
        if is_distributed(made):  # a LossScaleOptimizer, if its inner optimizer is distributed
            return made
        if not isinstance(name, _Name):
            raise ValueError(
                f"this configuration of a distributed {base.__name__} has been in a file, and no longer says how "
                f"gradients are reduced: use DistributedOptimizer({base.__name__}.from_config(config), ...)"
            )
        called = _operations_of(made, name.reduction.process_set)
        return _swap(made, name.reduction.for_copy(called), name.passes)

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_config(self.get_config())

    def __reduce__(self) -> Any:
        if self._ringcomm_reduction.local:
            raise TypeError(
                f"a distributed {type(self).__name__} with local variables cannot be pickled: pickle the plain "
                "optimizer's configuration, and call DistributedOptimizer and register_local_var where it is loaded"
            )
        config, inner = self._ringcomm_base.get_config(self), getattr(self, "inner_optimizer", None)
        config |= {"name": str(config["name"])} | ({} if inner is None else {"inner_optimizer": inner})
        reduction = self._ringcomm_reduction.for_copy(self._ringcomm_reduction.name)
        return _unpickled, (self._ringcomm_base, config, reduction, self._ringcomm_passes)


class _DistributedLossScale(_Distributed):
    """The methods for a LossScaleOptimizer: detects overflow in reduced gradients, so that all ranks agree on it."""

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        mine = self._trainable_variables  # type: ignore[attr-defined]  # the replica check compares their values
        values = keras.StatelessScope(state_mapping=zip(mine, trainable_variables, strict=True))
        with values, self._ringcomm_reduction.once(grads, mine) as reduced:
            return self._ringcomm_base.stateless_apply(self, optimizer_variables, reduced, trainable_variables)


class _Name(str):
    """The name in a distributed optimizer's configuration, which also carries the reduction.

    A file contains only the text, so a configuration from a file lacks the reduction.
    """

    def __new__(cls, name: str, reduction: GradientReduction, passes: int) -> _Name:
        made = super().__new__(cls, name)
        made.reduction, made.passes = reduction, passes
        return made

    reduction: GradientReduction
    passes: int

    def __deepcopy__(self, memo: Any) -> _Name:
        return self

    def __reduce__(self) -> Any:
        return str, (str(self),)


class _RegisteredName(str):
    """The key of a distributed class in Keras' registry, equal to no other object.

    Its text, which saved models contain, is the key of the plain class.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __deepcopy__(self, memo: Any) -> _RegisteredName:
        return self

    def __reduce__(self) -> Any:
        return str, (str.__str__(self),)


def is_distributed(optimizer: Any) -> bool:
    return hasattr(type(optimizer), "_ringcomm_base")


@cache
def _distributed_class(base: Any) -> Any:
    """Returns a subclass with the same name and module. Keras finds it for configurations made in this process."""
    loss_scale = issubclass(base, keras.optimizers.LossScaleOptimizer)
    own: dict[str, Any] = {}
    for source in (_Distributed, *([_DistributedLossScale] if loss_scale else [])):
        own |= {key: value for key, value in vars(source).items() if key not in ("__dict__", "__weakref__")}
    own |= {"_ringcomm_base": base, "__module__": base.__module__, "__qualname__": base.__qualname__}
    made = type(base.__name__, (base,), own)
    name = _RegisteredName(object_registration.get_registered_name(base))
    object_registration.GLOBAL_CUSTOM_OBJECTS[name] = made
    object_registration.GLOBAL_CUSTOM_NAMES[made] = name
    return made


def _swap(optimizer: Any, reduction: GradientReduction, passes: int) -> Any:
    base: Any = type(optimizer)
    optimizer.__class__ = _distributed_class(base)
    optimizer.__dict__.update({"_ringcomm_reduction": reduction, "_ringcomm_passes": passes})
    return optimizer


def _unpickled(base: Any, config: dict[str, Any], reduction: GradientReduction, passes: int) -> Any:
    if "inner_optimizer" in config:
        return base(**config)
    return _swap(base.from_config(config), reduction, passes)


def _distribute_around(method: Any) -> Any:
    """Returns `LossScaleOptimizer.__init__` that distributes the optimizer if its inner optimizer is distributed.

    Keras itself creates LossScaleOptimizers under mixed_float16. Without this, a rank with an overflow would skip the
    reduction and the other ranks would wait for it.
    """

    @wraps(method)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        if is_distributed(self.inner_optimizer) and not is_distributed(self):
            _swap(self, self.inner_optimizer._ringcomm_reduction, 1)

    return init


keras.optimizers.LossScaleOptimizer.__init__ = _distribute_around(keras.optimizers.LossScaleOptimizer.__init__)


def _operations_of(optimizer: Any, process_set: ProcessSet) -> str:
    """Returns a name for the operations of an optimizer, with a number among distributed optimizers of that name.

    Keras' own numbers count all optimizers, and ranks may make different numbers of them.
    """
    name = f"optimizer.{unnumbered(optimizer.name)}"
    counts = process_set.session().extras.setdefault("keras.optimizers", {})
    number = counts[process_set, name] = counts.get((process_set, name), -1) + 1
    return f"{name}.{number}" if number else name


def _forget_traces(optimizer: Any, outer: Any) -> None:
    """Makes models that are compiled with the optimizer trace their steps again.

    Raises ValueError if a traced function of the user contains steps without a reduction.
    """
    for one in gc.get_objects():
        if issubclass(type(one), keras.Model) and getattr(one, "optimizer", None) in (optimizer, outer):
            one.train_function = None
    gc.collect()
    if reduction_class().is_in_a_graph(optimizer._iterations):
        raise ValueError(
            f"this {type(optimizer).__name__} is part of a traced function, which would go on without the other ranks: "
            "call DistributedOptimizer before the first step, or make a new optimizer"
        )


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
    """Makes ``optimizer`` reduce gradients over all ranks before each step.

    Args:
        optimizer: a ``keras.optimizers.Optimizer`` that is not distributed already. It is changed in place and
            returned, under the policy ``mixed_float16`` within a LossScaleOptimizer. Models that have been trained with
            it trace their steps again.
        name: name of the operations; None: the optimizer's name.
        device_dense, device_sparse: accepted because Horovod has them; not used.
        compression: wire format between hosts: ``Compression.none``, ``.fp16``, ``.bf16``.
        sparse_as_dense: convert ``tf.IndexedSlices`` to dense and reduce them; else gather their values and indices.
        gradient_predivide_factor: with ``Average``, divides by this before the sum, and by size / this after it.
        op: ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``, for the gradients.
        backward_passes_per_step: number of passes whose gradients a rank adds up before it reduces them.
        average_aggregated_gradients: divide the sum of these passes by their number.
        num_groups: number of operations to split the gradients into; 0: one operation.
        groups: lists of variables, each reduced in one operation; None: all variables in one.
        process_set: the ranks to reduce over; other ranks reduce nothing.
        scale_local_gradients: divide gradients of local variables (``register_local_var``) by the number of ranks.
        algorithm: algorithm of the all-reduces; None: the core chooses.

    Raises:
        ValueError: arguments contradict each other, the optimizer is distributed already, or it is part of a traced
            function of the program.
        MismatchError: (in ``fit`` on TensorFlow: ``tf.errors.FailedPreconditionError`` with its text) ranks have
            different gradients.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(f"DistributedOptimizer takes a Keras optimizer, not {type(optimizer).__name__}")
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if scaled else optimizer
    if is_distributed(inner):
        raise ValueError(f"this {type(optimizer).__name__} is distributed already: wrap an optimizer once")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    if backward_passes_per_step > 1:
        if inner.gradient_accumulation_steps not in (None, backward_passes_per_step):
            raise ValueError("give backward_passes_per_step or gradient_accumulation_steps, not both")
        inner.gradient_accumulation_steps = backward_passes_per_step
    among = num_groups, groups, process_set, scale_local_gradients, algorithm
    called = name or _operations_of(inner, process_set)
    reduction = reduction_class()(called, op, compression, sparse_as_dense, gradient_predivide_factor, *among)
    if backward_passes_per_step > 1 and not average_aggregated_gradients:
        reduction.factor = float(backward_passes_per_step)  # undoes Keras' division
    if inner.built:
        _forget_traces(inner, optimizer)
    _swap(inner, reduction, inner.gradient_accumulation_steps or 1)
    if scaled:
        return _swap(optimizer, reduction, 1)
    under_mixed_precision = keras.config.dtype_policy().name == "mixed_float16"
    return keras.optimizers.LossScaleOptimizer(inner) if under_mixed_precision else inner


def PartialDistributedOptimizer(optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any) -> Any:
    """Makes ``optimizer`` distributed as :func:`DistributedOptimizer` does, but does not reduce ``local_layers``.

    ``local_layers`` is a built Keras layer or a list of them.
    """
    made = DistributedOptimizer(optimizer, *arguments, **options)
    made._ringcomm_reduction.keep_layers_local(local_layers)
    return made
