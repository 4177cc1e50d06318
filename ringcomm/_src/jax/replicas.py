"""The replica check (:mod:`ringcomm._src.training.replicas`) for pytrees of parameters.

`functions.distributed` and Keras' optimizers call it in each step; users call :func:`check_replicas`.
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


def look(check: CountedCheck, gradients: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> None:
    """Counts a step and compares the values if a comparison is due: now, or in runs of the program being traced.

    Constants of a program are not compared.
    """
    if any(isinstance(one, jax.core.Tracer) for one in values):
        what = check.in_program([one.dtype.name for one in values], partial(with_names, names))
        operation = Operation(what.process_set, what.collective, what.names, look=what.look, every=what.every)
        bind(operation, [jax.lax.stop_gradient(one) for one in values])
    elif not any(isinstance(one, jax.core.Tracer) for one in gradients) and (run := check.due()):
        check.compare_arrays(run, names, [np.asarray(one) for one in values])


def look_at(parameters: Any, gradients: Any, name: str, process_set: ProcessSet | None) -> None:
    """Calls `look` on the leaves of pytrees."""
    process_set = global_process_set if process_set is None else process_set
    names, values = _leaves(parameters)
    if values and process_set.size() > 1 and (steps := every(process_set)):
        check = CountedCheck(process_set, f"{name}.{len(values)}", f"the optimizer {name!r}", steps)
        look(check, jax.tree.leaves(gradients), names, values)


def check_replicas(parameters: Any, name: str = "parameters", process_set: ProcessSet = global_process_set) -> None:
    """Compares a pytree of parameters between the ranks now. Collective.

    A difference is a warning on the first rank, or with ``RINGCOMM_REPLICA_CHECK=error`` a MismatchError on every rank.
    The message names the parameters, the ranks and the largest difference. Each call counts as a step. In ``jax.jit``
    use :func:`distributed`, which compares its parameters itself.

    Args:
        parameters: a pytree of arrays, with the same shapes on all ranks.
        name: name of the operations and in messages.
        process_set: the ranks that compare.

    Raises:
        MismatchError: parameters differ, and the option is ``error``.
        ValueError: it is called under ``jax.jit``.
    """
    names, values = _leaves(parameters)
    if any(isinstance(one, jax.core.Tracer) for one in values):
        raise ValueError("check_replicas compares values, which a traced program has not: call it outside of jax.jit")
    compare_now(process_set, name, names, [np.asarray(one) for one in values])


def _leaves(tree: Any) -> tuple[list[str], list[Any]]:
    """Returns names and arrays of the leaves whose dtypes the core can send."""
    pairs = [(jax.tree_util.keystr(path), jnp.asarray(one)) for path, one in jax.tree_util.tree_leaves_with_path(tree)]
    known = [(name, one) for name, one in pairs if one.dtype.name in _core.DTYPES]
    return [name for name, _ in known], [one for _, one in known]
