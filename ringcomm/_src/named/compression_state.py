"""What encoders have left out of gradients in TensorFlow, Keras and JAX, to be saved and loaded. ``ringcomm.torch``'s
optimizers have methods of these names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringcomm._src.base.ops import Sum
from ringcomm._src.named import collectives, error_feedback, objects
from ringcomm._src.named.error_feedback import Floats
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


def compression_state_dict(process_set: ProcessSet = global_process_set) -> dict[str, Floats]:
    """What encoders have left out of gradients so far (``compression=`` with error feedback), on all ranks together:
    float32 arrays, measured as reduced gradients are, by the names of operations. Those are made of the optimizer's
    name and the variable's, so variables need names of their own. Collective, between steps; under JAX, whose steps run
    on while Python does, behind ``jax.block_until_ready``. Any number of ranks may load it; one rank alone drops it.

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
    """Takes up what :func:`compression_state_dict` gave, in place of what is owed: on all ranks, between steps. The
    first rank owes all of it. What no operation has the name of waits for one that will be made.

    Raises:
        ValueError: an operation's gradient has another number of elements; or a step is under way.
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
