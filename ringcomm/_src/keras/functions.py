"""Collectives on values, variables and objects, the replica check, and loading of Keras models.

Values are converted to NumPy arrays; results are NumPy arrays. `ringcomm.keras` exports
these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ringcomm._src.base.ops import Average
from ringcomm._src.core import _core
from ringcomm._src.keras.backends import Compression
from ringcomm._src.keras.optimizer import DistributedOptimizer
from ringcomm._src.named import collectives, objects
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.gradient_lists import unnumbered
from ringcomm._src.training.replicas import compare_now


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(keras.ops.convert_to_numpy(value), order="C")  # keeps 0-d arrays


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the reduction of every rank's value as a NumPy array.

    Parameters
    ----------
    value : array_like
        A tensor of the backend, an array or a number. Dtype and shape are the same on every rank.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    average : bool | None
        Deprecated; True: ``op=Average``, False: ``op=Sum``.
    prescale_factor, postscale_factor : float
        ``prescale_factor`` multiplies every rank's values before the reduction,
        ``postscale_factor`` the result.
    op : Op | None
        ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
    compression : compressor
        Data format between hosts (``Compression.fp16``, ``.bf16``), for wider floating dtypes.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    np.ndarray
        An array of the same dtype and shape.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ.
    UnsupportedError
        The op does not support the dtype. The class derives from TypeError and ValueError.

    Examples
    --------
    >>> hvd.allreduce(np.full(2, 1.0 + hvd.rank())).tolist()   # of [1, 1] and [2, 2]
    [1.5, 1.5]
    >>> float(hvd.allreduce(2.0, op=hvd.Sum))
    4.0
    """
    factors = prescale_factor, postscale_factor
    return collectives.allreduce(_array(value), average, name, compression, op, *factors, process_set)


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates every rank's value along the first dimension in rank order.

    Parameters
    ----------
    value : array_like
        All dimensions except the first, and the dtype, are the same on every rank. A scalar counts
        as one row.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    np.ndarray
        An array of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, or dimensions other than the first, differ.

    Examples
    --------
    >>> hvd.allgather(np.full(1 + hvd.rank(), hvd.rank())).tolist()
    [0, 1, 1]
    """
    return collectives.allgather(_array(value), name, process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Returns the root's value on every rank.

    Parameters
    ----------
    value : array_like
        Dtype and shape are the same on every rank.
    root_rank : int
        Global rank that provides the value.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    np.ndarray
        An array of the same dtype and shape.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or roots differ.
    ValueError
        The root is not in the process set.

    Examples
    --------
    >>> hvd.broadcast(np.array([hvd.rank()]), root_rank=1).tolist()
    [1]
    """
    return collectives.broadcast(_array(value), root_rank, name, process_set)


def reducescatter(
    value: Any, name: str | None = None, op: Any = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Reduces every rank's value. Returns part r of the result on rank r of the set.

    The reduction is divided along the first dimension; the first ``value.shape[0] % size`` ranks
    get one more row.

    Parameters
    ----------
    value : array_like
        Has at least one dimension. Dtype and shape are the same on every rank.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    op : Op
        As for :func:`allreduce`.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    np.ndarray
        This rank's rows of the reduction, of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ.
    ValueError
        The first argument has no dimensions.
    UnsupportedError
        The op is ``Adasum``.

    Examples
    --------
    >>> hvd.reducescatter(np.ones((2, 3)), op=hvd.Sum).tolist()
    [[2.0, 2.0, 2.0]]
    """
    return collectives.reducescatter(_array(value), name, op=op, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Assigns the root's values to Keras variables, in one operation.

    Parameters
    ----------
    variables : Sequence[keras.Variable]
        ``model.variables`` or ``optimizer.variables``, in the same order on all ranks. Variables of
        strings are skipped.
    root_rank : int
        Global rank that provides the values.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    MismatchError
        On every rank, if the number of variables, their shapes or their dtypes differ.
    ValueError
        The root is not in the process set.

    Examples
    --------
    >>> weight = keras.Variable([1.0 * hvd.rank()])
    >>> hvd.broadcast_variables([weight], root_rank=1)
    >>> keras.ops.convert_to_numpy(weight).tolist()
    [1.0]
    """
    sendable = [variable for variable in variables if "string" not in str(variable.dtype)]
    arrays = [np.array(_array(variable)) for variable in sendable]
    from ringcomm._src.arrays import arrays as kinds
    from ringcomm._src.calls import calls  # not part of this module's interface
    from ringcomm._src.named import named  # not part of this module's interface
    from ringcomm._src.named.graph_ops import root_in

    root = root_in(process_set, root_rank)
    requests = [calls.broadcast(*kinds.pair(array, array), root) for array in arrays]
    names = [f"variables.{i}.{unnumbered(variable.path)}" for i, variable in enumerate(sendable)]
    if requests:
        named.submit_group(process_set, requests, names).wait()
    for variable, value in zip(sendable, arrays, strict=True):
        variable.assign(value.reshape(variable.shape))


def check_replicas(
    variables: Sequence[Any], name: str = "variables", process_set: ProcessSet = global_process_set
) -> None:
    """Compares Keras variables between the ranks. Collective.

    If variables differ, rank 0 logs a warning. If ``RINGCOMM_REPLICA_CHECK`` is ``error``, every
    rank raises MismatchError instead. The message names the variables, the ranks, the largest
    difference and a step, which is the number of calls with this name.

    Parameters
    ----------
    variables : Sequence[keras.Variable]
        ``model.variables``, with the same shapes on all ranks.
    name : str
        Name of the comparison in messages.
    process_set : ProcessSet
        The ranks that compare.

    Raises
    ------
    MismatchError
        On every rank, if variables differ and ``RINGCOMM_REPLICA_CHECK`` is ``error``.

    Examples
    --------
    >>> hvd.check_replicas([keras.Variable([1.0, 2.0])])   # identical on all ranks: no warning
    """
    sendable = [variable for variable in variables if str(variable.dtype) in _core.DTYPES]
    compare_now(
        process_set,
        name,
        [unnumbered(variable.path) for variable in sendable],
        [_array(variable) for variable in sendable],
    )


def broadcast_global_variables(root_rank: int) -> None:
    """Raises RuntimeError: Keras 3 has no global variables. The message names the replacements.

    Examples
    --------
    >>> hvd.broadcast_global_variables(0)
    Traceback (most recent call last):
    RuntimeError: Keras 3 has no global variables: use hvd.broadcast_variables(...
    """
    raise RuntimeError(
        "Keras 3 has no global variables: use hvd.broadcast_variables(model.variables, root_rank) or "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)"
    )


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's object on every rank.

    Parameters
    ----------
    obj : Any
        On the root, any object that can be pickled (with cloudpickle if it is installed); ignored
        on the other ranks.
    root_rank : int
        Global rank that provides the object.
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    Any
        ``obj`` itself on the root, a copy on the other ranks.

    Examples
    --------
    >>> hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None, root_rank=0)
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set, "keras")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns every rank's object, in rank order.

    Parameters
    ----------
    obj : Any
        Any object that can be pickled (with cloudpickle if it is installed).
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    list[Any]
        One object of each rank.

    Examples
    --------
    >>> hvd.allgather_object({"rank": hvd.rank()})
    [{'rank': 0}, {'rank': 1}]
    """
    return objects.allgather_object(obj, name, process_set, "keras")


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Loads a model with ``keras.models.load_model`` and makes its optimizer distributed.

    Parameters
    ----------
    filepath : str | Path
        Path of a model that was saved with or without ringcomm.
    custom_optimizers : Sequence[Any] | None
        Classes of optimizers that Keras does not know.
    custom_objects : dict[str, Any] | None
        Argument of ``keras.models.load_model``.
    compression : compressor
        Compression of the optimizer.
    legacy_opts : bool
        Accepted because Horovod has it; Keras 3 has no legacy optimizers.
    options : Any
        Further arguments of :func:`DistributedOptimizer`.

    Returns
    -------
    keras.Model
        The model. Its optimizer, if it has one, is distributed.

    Examples
    --------
    >>> import os, tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), loss="mse")
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> hasattr(hvd.load_model(path).optimizer, "register_local_var")      # distributed
    True
    """
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression, **options)
    return model
