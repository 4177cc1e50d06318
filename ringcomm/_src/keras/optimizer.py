"""Keras optimizers that reduce gradients over all ranks before each step, on all backends.

The wrapper changes the optimizer's class to a subclass with the same name and module. A model
with this optimizer can therefore be saved, and loaded without ringcomm. Gradients are reduced at
the start of ``apply``, before clipping and weight decay. With ``backward_passes_per_step``, Keras
accumulates gradients and the wrapper reduces the sums.
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

    Copies of the optimizer are distributed too: by deepcopy, pickle, from_config, and by serialize
    and deserialize within this process.
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
            overwritten = [getattr(variable, "overwrite_with_gradient", False) for variable in variables]
            present = [g is not None and not overwrites for g, overwrites in zip(grads, overwritten, strict=True)]
            self.__dict__["_ringcomm_sums"] = variables, present
            return self._ringcomm_base.apply(self, grads, trainable_variables)
        with self._ringcomm_reduction.reduced_once(grads, variables) as reduced:
            return self._ringcomm_base.apply(self, reduced, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        """Reduces the sums of several passes: Keras calls this once a step, with the sums."""
        if self._ringcomm_passes == 1 or self._ringcomm_reduction.applying:
            return self._ringcomm_base._clip_gradients(self, grads)
        variables, present = self.__dict__["_ringcomm_sums"]
        sums = iter(grads)
        with self._ringcomm_reduction.reduced_once(
            [next(sums) if is_present else None for is_present in present], variables
        ) as reduced:
            return self._ringcomm_base._clip_gradients(self, [gradient for gradient in reduced if gradient is not None])

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._ringcomm_base.get_config(self)
        return config | {"name": _Name(config["name"], self._ringcomm_reduction, self._ringcomm_passes)}

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        name, base = config["name"], cls._ringcomm_base
        optimizer = base.from_config({**config, "name": str(name)}, *args, **kwargs)
        if is_distributed(optimizer):  # a LossScaleOptimizer, if its inner optimizer is distributed
            return optimizer
        if not isinstance(name, _Name):
            raise ValueError(
                f"this configuration of a distributed {base.__name__} was loaded from a file, and does not contain how "
                f"gradients are reduced: use DistributedOptimizer({base.__name__}.from_config(config), ...)"
            )
        operation_name = _operations_of(optimizer, name.reduction.process_set)
        return _make_distributed(optimizer, name.reduction.for_copy(operation_name), name.passes)

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self).from_config(self.get_config())

    def __reduce__(self) -> Any:
        if self._ringcomm_reduction.local:
            raise TypeError(
                f"a distributed {type(self).__name__} with local variables cannot be pickled: pickle the plain "
                "optimizer's configuration, and call DistributedOptimizer and register_local_var after loading it"
            )
        config, inner = self._ringcomm_base.get_config(self), getattr(self, "inner_optimizer", None)
        config |= {"name": str(config["name"])} | ({} if inner is None else {"inner_optimizer": inner})
        reduction = self._ringcomm_reduction.for_copy(self._ringcomm_reduction.name)
        return _unpickled, (self._ringcomm_base, config, reduction, self._ringcomm_passes)


class _DistributedLossScale(_Distributed):
    """The methods for a LossScaleOptimizer, which detects overflow in the reduced gradients.

    All ranks therefore detect the same overflow.
    """

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        trainable = self._trainable_variables  # type: ignore[attr-defined]  # the replica check compares their values
        values = keras.StatelessScope(state_mapping=zip(trainable, trainable_variables, strict=True))
        with values, self._ringcomm_reduction.reduced_once(grads, trainable) as reduced:
            return self._ringcomm_base.stateless_apply(self, optimizer_variables, reduced, trainable_variables)


class _Name(str):
    """The name in a distributed optimizer's configuration, which also carries the reduction.

    A file contains only the text, so a configuration from a file lacks the reduction.
    """

    def __new__(cls, name: str, reduction: GradientReduction, passes: int) -> _Name:
        instance = super().__new__(cls, name)
        instance.reduction, instance.passes = reduction, passes
        return instance

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
    """Returns a subclass with the same name and module.

    Keras finds the subclass for configurations that this process made.
    """
    loss_scale = issubclass(base, keras.optimizers.LossScaleOptimizer)
    namespace: dict[str, Any] = {}
    for source in (_Distributed, *([_DistributedLossScale] if loss_scale else [])):
        namespace |= {key: value for key, value in vars(source).items() if key not in ("__dict__", "__weakref__")}
    namespace |= {"_ringcomm_base": base, "__module__": base.__module__, "__qualname__": base.__qualname__}
    subclass = type(base.__name__, (base,), namespace)
    name = _RegisteredName(object_registration.get_registered_name(base))
    object_registration.GLOBAL_CUSTOM_OBJECTS[name] = subclass
    object_registration.GLOBAL_CUSTOM_NAMES[subclass] = name
    return subclass


def _make_distributed(optimizer: Any, reduction: GradientReduction, passes: int) -> Any:
    base: Any = type(optimizer)
    optimizer.__class__ = _distributed_class(base)
    optimizer.__dict__.update({"_ringcomm_reduction": reduction, "_ringcomm_passes": passes})
    return optimizer


def _unpickled(base: Any, config: dict[str, Any], reduction: GradientReduction, passes: int) -> Any:
    if "inner_optimizer" in config:
        return base(**config)
    return _make_distributed(base.from_config(config), reduction, passes)


def _distribute_around(method: Any) -> Any:
    """Returns the constructor `method`, extended for a distributed inner optimizer.

    It makes the LossScaleOptimizer distributed too. Keras itself creates LossScaleOptimizers under
    mixed_float16. If they were not distributed, a rank with an
    overflow would skip the reduction and the other ranks would wait for it.
    """

    @wraps(method)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        method(self, *args, **kwargs)
        if is_distributed(self.inner_optimizer) and not is_distributed(self):
            _make_distributed(self, self.inner_optimizer._ringcomm_reduction, 1)

    return init


keras.optimizers.LossScaleOptimizer.__init__ = _distribute_around(keras.optimizers.LossScaleOptimizer.__init__)


def _operations_of(optimizer: Any, process_set: ProcessSet) -> str:
    """Returns a name for the operations of an optimizer, numbered if others have that name.

    Keras' own numbers are not used: they count all optimizers of a process, and ranks may create
    different numbers of optimizers.
    """
    name = f"optimizer.{unnumbered(optimizer.name)}"
    counts = process_set.session().extras.setdefault("keras.optimizers", {})
    number = counts[process_set, name] = counts.get((process_set, name), -1) + 1
    return f"{name}.{number}" if number else name


def _forget_traces(optimizer: Any, outer: Any) -> None:
    """Makes models that are compiled with the optimizer trace their steps again.

    Raises ValueError if a traced function of the script contains steps without a reduction.
    """
    for model in gc.get_objects():
        if issubclass(type(model), keras.Model) and getattr(model, "optimizer", None) in (optimizer, outer):
            model.train_function = None
    gc.collect()
    if reduction_class().is_in_a_graph(optimizer._iterations):
        raise ValueError(
            f"this {type(optimizer).__name__} is part of a traced function, which would not reduce its gradients: call "
            "DistributedOptimizer before the first step, or create a new optimizer"
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

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        An optimizer that is not distributed. It is changed in place. Models that have been trained
        with it trace their steps again.
    name : str | None
        Name of the operations; None: the optimizer's name.
    device_dense, device_sparse
        Accepted because Horovod has them; not used.
    compression : compressor | str
        Wire format between hosts (``Compression.fp16``, ``.onebit``), or a custom compressor.
    sparse_as_dense : bool
        Convert ``tf.IndexedSlices`` to dense and reduce them; else gather their values and indices.
    gradient_predivide_factor : float
        With ``Average``, gradients are divided by this factor before the sum, and their sum by
        size / factor.
    op : Op
        ``Average``, ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``, for the gradients.
    backward_passes_per_step : int
        Number of backward passes per step. A rank adds up their gradients, then reduces the sum.
    average_aggregated_gradients : bool
        Divide the sum of these passes by their number.
    num_groups : int
        Number of operations to split the gradients into; 0: one operation.
    groups : int | list[list[keras.Variable]] | None
        Lists of variables, each reduced in one operation; None: all variables in one.
    process_set : ProcessSet
        The ranks to reduce over; other ranks reduce nothing.
    scale_local_gradients : bool
        Divide gradients of local variables (``register_local_var``) by the number of ranks.
    algorithm : str | None
        Algorithm of the all-reduces; None: chosen automatically.

    Returns
    -------
    keras.optimizers.Optimizer
        ``optimizer``; under the policy ``mixed_float16``, a LossScaleOptimizer around it.

    Raises
    ------
    ValueError
        Arguments contradict each other, the optimizer is already distributed, or it is part of a
        function of the script that is already traced (``tf.function``).
    MismatchError
        A step raises it on every rank, if ranks have different gradients; in ``fit`` on TensorFlow,
        ``tf.errors.FailedPreconditionError`` with its text.

    Examples
    --------
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    >>> weight = keras.Variable([1.0])
    >>> gradient = keras.ops.convert_to_tensor([1.0 * hvd.rank()])     # 0 and 1, mean 0.5
    >>> optimizer.apply([gradient], [weight])
    >>> keras.ops.convert_to_numpy(weight).tolist()
    [0.75]
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(f"DistributedOptimizer takes a Keras optimizer, not {type(optimizer).__name__}")
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if scaled else optimizer
    if is_distributed(inner):
        raise ValueError(f"this {type(optimizer).__name__} is distributed already: call DistributedOptimizer once")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    if backward_passes_per_step > 1:
        if inner.gradient_accumulation_steps not in (None, backward_passes_per_step):
            raise ValueError("pass backward_passes_per_step or gradient_accumulation_steps, not both")
        inner.gradient_accumulation_steps = backward_passes_per_step
    grouping = num_groups, groups, process_set, scale_local_gradients, algorithm
    operation_name = name or _operations_of(inner, process_set)
    reduction = reduction_class()(
        operation_name, op, compression, sparse_as_dense, gradient_predivide_factor, *grouping
    )
    if backward_passes_per_step > 1 and not average_aggregated_gradients:
        reduction.factor = float(backward_passes_per_step)  # undoes Keras' division
    if inner.built:
        _forget_traces(inner, optimizer)
    _make_distributed(inner, reduction, inner.gradient_accumulation_steps or 1)
    if scaled:
        return _make_distributed(optimizer, reduction, 1)
    under_mixed_precision = keras.config.dtype_policy().name == "mixed_float16"
    return keras.optimizers.LossScaleOptimizer(inner) if under_mixed_precision else inner


def PartialDistributedOptimizer(optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any) -> Any:
    """Makes ``optimizer`` distributed, except for the gradients of ``local_layers``.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        The optimizer; ``arguments`` and ``options`` are those of :func:`DistributedOptimizer`.
    local_layers : keras.layers.Layer | list[keras.layers.Layer] | None
        Built layers. Their gradients are not reduced.

    Returns
    -------
    keras.optimizers.Optimizer
        The result of :func:`DistributedOptimizer`.

    Raises
    ------
    ValueError
        As :func:`DistributedOptimizer`.

    Examples
    --------
    >>> layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    >>> layer.build((1, 1))
    >>> optimizer = keras.optimizers.SGD(1.0)
    >>> optimizer = hvd.PartialDistributedOptimizer(optimizer, local_layers=layer)
    >>> gradient = keras.ops.convert_to_tensor([[2.0 * hvd.rank()]])
    >>> optimizer.apply([gradient], layer.trainable_variables)
    >>> layer.get_weights()[0].tolist() == [[1.0 - hvd.rank()]]    # the gradient, divided by size
    True
    """
    wrapped = DistributedOptimizer(optimizer, *arguments, **options)
    wrapped._ringcomm_reduction.keep_layers_local(local_layers)
    return wrapped
