"""Saves and loads the residuals of compressed gradients in TensorFlow, Keras and JAX.

The optimizers of ``ringcomm.torch`` have methods of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringcomm._src.base.ops import Sum
from ringcomm._src.named import collectives, error_feedback, objects
from ringcomm._src.named.error_feedback import Floats
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


def compression_state_dict(process_set: ProcessSet = global_process_set) -> dict[str, Floats]:
    """Returns the residuals of compressed gradients, summed over all ranks. Collective.

    Gradients have residuals if ``compression=`` is a format with error feedback. Call this function
    between steps; under JAX, whose steps run asynchronously, after ``jax.block_until_ready``. A job
    with any number of ranks may load the state; a job of one rank drops it.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that reduce the gradients; other ranks get an empty dict.

    Returns
    -------
    dict[str, np.ndarray]
        One-dimensional float32 arrays in units of the reduced gradients, keyed by the names of
        operations. A name is made of the optimizer's and the variable's name, so variables need
        unique names.

    Raises
    ------
    ValueError
        A step is in progress.

    Examples
    --------
    >>> state = hvd.compression_state_dict()           # save it with the model
    >>> hvd.load_compression_state_dict(state)
    """
    if not process_set.included():
        return {}
    residuals = dict(error_feedback.loaded_residuals.get(process_set, {}))
    for store in error_feedback.of(process_set):
        for index, name in enumerate(store.names):
            residual = store.saved(index)
            if residual.size:
                residuals[name] = residuals[name] + residual if name in residuals else residual
    all_sizes = objects.allgather_object(
        {name: residual.size for name, residual in residuals.items()}, "compression_state", process_set
    )
    counts = {name: count for sizes in all_sizes for name, count in sizes.items()}
    handles = {
        name: collectives.allreduce_async(
            residuals.get(name, np.zeros(counts[name], np.float32)),
            name=f"compression_state.{name}",
            op=Sum,
            process_set=process_set,
        )
        for name in sorted(counts)
    }
    return {name: handle.wait() for name, handle in handles.items()}


def load_compression_state_dict(state: Mapping[str, Any], process_set: ProcessSet = global_process_set) -> None:
    """Replaces the residuals by the result of :func:`compression_state_dict`.

    Call it on all ranks, between steps. The first rank gets all residuals. Residuals of operations
    that do not exist yet are stored until the operations are created.

    Parameters
    ----------
    state : Mapping[str, np.ndarray]
        Residuals by name.
    process_set : ProcessSet
        The ranks that reduce the gradients; the call does nothing on other ranks.

    Raises
    ------
    ValueError
        An operation's gradient has a different number of elements, or a step is in progress.

    Examples
    --------
    >>> state = hvd.compression_state_dict()
    >>> hvd.load_compression_state_dict(state)
    """
    if not process_set.included():
        return
    locations = {
        name: (store, index) for store in error_feedback.of(process_set) for index, name in enumerate(store.names)
    }
    loaded = {name: np.asarray(residual, np.float32).ravel() for name, residual in state.items()}
    for name in locations.keys() & loaded.keys():
        store, index = locations[name]
        count = store.residual(index).size
        if count not in (0, loaded[name].size):
            raise ValueError(
                f"the compression state of '{name}' has {loaded[name].size} elements, but its gradient has {count}"
            )
    for store in error_feedback.of(process_set):
        for index in range(len(store.names)):
            store.set_residual(index, np.zeros_like(store.residual(index)))
    error_feedback.loaded_residuals[process_set] = {}
    if process_set.rank() != 0:
        return
    for name, residual in loaded.items():
        if name in locations:
            store, index = locations[name]
            store.restore(index, residual)
        else:
            error_feedback.loaded_residuals[process_set][name] = residual
