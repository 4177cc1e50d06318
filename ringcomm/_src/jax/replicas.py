"""The replica check (:mod:`ringcomm._src.training.replicas`) for pytrees of parameters.

`functions.distributed` and Keras' optimizers call it in each step; users call
:func:`check_replicas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringcomm._src.core import _core
from ringcomm._src.jax.collective import Operation, bind
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.replicas import CountedCheck, compare_now, every, with_names


def check_step(check: CountedCheck, gradients: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> None:
    """Counts a step, and compares the values if a comparison is due.

    Compares now or, if a function is being traced, when the compiled function runs. Constants of a
    compiled function are not compared.
    """
    if any(isinstance(value, jax.core.Tracer) for value in values):
        description = check.graph_operation([value.dtype.name for value in values], partial(with_names, names))
        operation = Operation(
            description.process_set,
            description.collective,
            description.names,
            look=description.look,
            every=description.every,
        )
        bind(operation, [jax.lax.stop_gradient(value) for value in values])
    elif not any(isinstance(gradient, jax.core.Tracer) for gradient in gradients) and (run := check.due()):
        check.compare_arrays(run, names, [np.asarray(value) for value in values])


def check_step_of_trees(parameters: Any, gradients: Any, name: str, process_set: ProcessSet | None) -> None:
    """Calls `check_step` on the leaves of pytrees."""
    process_set = global_process_set if process_set is None else process_set
    names, values = _leaves(parameters)
    if values and process_set.size() > 1 and (steps := every(process_set)):
        check = CountedCheck(process_set, f"{name}.{len(values)}", f"the optimizer {name!r}", steps)
        check_step(check, jax.tree.leaves(gradients), names, values)


def check_replicas(parameters: Any, name: str = "parameters", process_set: ProcessSet = global_process_set) -> None:
    """Compares a pytree of parameters between the ranks. Collective.

    If parameters differ, the first rank logs a warning. With ``RINGCOMM_REPLICA_CHECK=error``,
    every rank raises MismatchError instead. The message names the parameters, the ranks, the
    largest difference and a step, which is the number of calls with this name. In ``jax.jit`` use
    :func:`distributed`, which compares its parameters itself.

    Parameters
    ----------
    parameters : pytree
        Arrays with the same shapes on all ranks.
    name : str
        Name of the comparison, also in messages.
    process_set : ProcessSet
        The ranks that compare.

    Raises
    ------
    MismatchError
        Parameters differ, and the option is ``error``.
    ValueError
        It is called under ``jax.jit``.

    Examples
    --------
    >>> hvd.check_replicas({"weight": jax.numpy.ones(3)})  # identical on all ranks: no warning
    """
    names, values = _leaves(parameters)
    if any(isinstance(value, jax.core.Tracer) for value in values):
        raise ValueError("check_replicas needs values, and a traced program has none: call it outside of jax.jit")
    compare_now(process_set, name, names, [np.asarray(value) for value in values])


def _leaves(tree: Any) -> tuple[list[str], list[Any]]:
    """Returns names and arrays of the leaves whose dtypes the core can send."""
    pairs = [
        (jax.tree_util.keystr(path), jnp.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    sendable = [(name, array) for name, array in pairs if array.dtype.name in _core.DTYPES]
    return [name for name, _ in sendable], [array for _, array in sendable]
