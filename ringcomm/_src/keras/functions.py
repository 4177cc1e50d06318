"""Collectives on values, broadcasts of variables and objects, the replica check, and loading of models, for Keras.

Values are arrays that NumPy converts; results are NumPy arrays. `ringcomm.keras` exports these functions.
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
    """Reduces every rank's value with ``op`` (None: the average). Returns a NumPy array."""
    factors = prescale_factor, postscale_factor
    return collectives.allreduce(_array(value), average, name, compression, op, *factors, process_set)


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates every rank's value along the first dimension, whose size may differ between ranks."""
    return collectives.allgather(_array(value), name, process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Returns the root's value on every rank."""
    return collectives.broadcast(_array(value), root_rank, name, process_set)


def reducescatter(
    value: Any, name: str | None = None, op: Any = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Reduces every rank's value and returns part r, along the first dimension, to rank r of the set."""
    return collectives.reducescatter(_array(value), name, op=op, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Assigns the root's values to Keras variables (``model.variables``, ``optimizer.variables``), in one operation.

    Raises:
        MismatchError: on every rank, if their numbers, shapes or dtypes differ.
    """
    given = [one for one in variables if "string" not in str(one.dtype)]
    arrays = [np.array(_array(one)) for one in given]
    from ringcomm._src.arrays import arrays as kinds
    from ringcomm._src.calls import calls  # not part of this module's interface
    from ringcomm._src.named import named  # not part of this module's interface
    from ringcomm._src.named.graph_ops import root_in

    root = root_in(process_set, root_rank)
    requests = [calls.broadcast(*kinds.pair(one, one), root) for one in arrays]
    names = [f"variables.{i}.{unnumbered(one.path)}" for i, one in enumerate(given)]
    if requests:
        named.submit_group(process_set, requests, names).wait()
    for variable, value in zip(given, arrays, strict=True):
        variable.assign(value.reshape(variable.shape))


def check_replicas(
    variables: Sequence[Any], name: str = "variables", process_set: ProcessSet = global_process_set
) -> None:
    """Compares Keras variables (``model.variables``) between the ranks. Collective.

    See :func:`ringcomm.tensorflow.check_replicas`.

    Raises:
        MismatchError: on every rank, if variables differ and ``RINGCOMM_REPLICA_CHECK`` is ``error``.
    """
    given = [one for one in variables if str(one.dtype) in _core.DTYPES]
    compare_now(process_set, name, [unnumbered(one.path) for one in given], [_array(one) for one in given])


def broadcast_global_variables(root_rank: int) -> None:
    """Raises RuntimeError: Keras 3 has no global variables. The message names the replacements."""
    raise RuntimeError(
        "Keras 3 has no global variables: use hvd.broadcast_variables(model.variables, root_rank) or "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)"
    )


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's object on every rank, as :func:`ringcomm.tensorflow.broadcast_object` does."""
    return objects.broadcast_object(obj, root_rank, name, process_set, "keras")


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns every rank's object, in rank order."""
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

    Args:
        filepath: path of a model that was saved with or without ringcomm.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: argument of ``keras.models.load_model``.
        compression: compression of the optimizer.
        legacy_opts: accepted because Horovod has it; Keras 3 has no legacy optimizers.
        options: further arguments of :func:`DistributedOptimizer`.
    """
    known = {one.__name__: one for one in custom_optimizers or ()} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known or None)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression, **options)
    return model
