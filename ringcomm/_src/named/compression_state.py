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
    """Returns the residuals of gradients (``compression=`` with error feedback), summed over all ranks. Collective.

    They are float32 arrays in units of the reduced gradients, keyed by the names of operations. A name is made of the
    optimizer's and the variable's name, so variables need unique names. Call it between steps; under JAX, whose steps
    run asynchronously, after ``jax.block_until_ready``. A job with any number of ranks may load the state; a job of one
    rank drops it.

    Raises:
        ValueError: a step is under way.
    """
    if not process_set.included():
        return {}
    mine = dict(error_feedback.waiting.get(process_set, {}))
    for store in error_feedback.of(process_set):
        for index, name in enumerate(store.names):
            residual = store.saved(index)
            if residual.size:
                mine[name] = mine[name] + residual if name in mine else residual
    known = objects.allgather_object({name: residual.size for name, residual in mine.items()}, "left_out", process_set)
    counts = {name: count for one in known for name, count in one.items()}
    handles = {
        name: collectives.allreduce_async(
            mine.get(name, np.zeros(counts[name], np.float32)), name=f"left_out.{name}", op=Sum, process_set=process_set
        )
        for name in sorted(counts)
    }
    return {name: handle.wait() for name, handle in handles.items()}


def load_compression_state_dict(state: Mapping[str, Any], process_set: ProcessSet = global_process_set) -> None:
    """Loads the result of :func:`compression_state_dict`, in place of the current residuals.

    Call it on all ranks, between steps. The first rank gets all residuals. Residuals of operations that do not exist
    yet are kept until the operations are made.

    Raises:
        ValueError: an operation's gradient has a different number of elements, or a step is under way.
    """
    if not process_set.included():
        return
    places = {name: (one, index) for one in error_feedback.of(process_set) for index, name in enumerate(one.names)}
    given = {name: np.asarray(residual, np.float32).ravel() for name, residual in state.items()}
    for name in places.keys() & given.keys():
        store, index = places[name]
        count = store.residual(index).size
        if count not in (0, given[name].size):
            raise ValueError(
                f"compression state of '{name}': {given[name].size} elements, where its gradient has {count}"
            )
    for store in error_feedback.of(process_set):
        for index in range(len(store.names)):
            store.set_residual(index, np.zeros_like(store.residual(index)))
    error_feedback.waiting[process_set] = {}
    if process_set.rank() != 0:
        return
    for name, residual in given.items():
        if name in places:
            store, index = places[name]
            store.restore(index, residual)
        else:
            error_feedback.waiting[process_set][name] = residual
