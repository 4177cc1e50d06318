"""The order of collectives in TensorFlow's graphs.

Two runs of one collective have one name, so every rank must run them in the same order. TensorFlow guarantees the
program's order only for operations that write one variable, and for operations with side effects and no variables. It
does not order calls of functions that only read variables, the gradient functions of tapes outside of functions, or a
graph of TensorFlow 1. This module adds the missing control dependencies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import function
from tensorflow.python.eager.polymorphic_function import concrete_function

# Attributes of graphs: a mark on graphs that contain a collective; the last collective of a graph
# of TensorFlow 1.
_COMMUNICATES, _LAST = "_ringcomm_communicates", "_ringcomm_last"


def run_after_the_last(run: Callable[[], Any]) -> Any:
    """Adds the collective of `run` to the current graph. A graph of TensorFlow 1 runs it after the previous one."""
    graph = tf.compat.v1.get_default_graph()
    if getattr(graph, "building_function", False):
        setattr(graph, _COMMUNICATES, True)
        return run()
    if graph._get_control_flow_context() is not None:
        return run()
    with tf.control_dependencies([getattr(graph, _LAST)] if hasattr(graph, _LAST) else []):
        results = run()
    last = results[0] if isinstance(results, list) and results else results
    setattr(graph, _LAST, getattr(last, "op", last))
    return results


def _keep_order(graph: Any) -> None:
    """Adds control dependencies to a graph's operations that communicate.

    These operations run in the order of their creation, and all of them before a function of the graph ends.
    """
    last = None
    for operation in graph.get_operations():
        if not _communicates(operation) or operation._control_flow_context is not None:
            continue
        setattr(graph, _COMMUNICATES, True)
        if last is not None and last not in operation.control_inputs:
            operation._add_control_input(last)
        if operation not in graph.control_outputs:
            graph.control_outputs.append(operation)
        last = operation


def _communicates(operation: Any) -> bool:
    if operation.type in ("RingcommRun", "PyFunc", "EagerPyFunc"):
        return True
    if operation.type not in ("StatefulPartitionedCall", "Case", "If", "While"):
        return False
    values = operation.node_def.attr.values()
    called = [one for value in values for one in (value.func, *value.list.func) if one.name]
    return any(_is_of_such_a_graph(operation.graph._get_function(one.name)) for one in called)


def _is_of_such_a_graph(made: Any) -> bool:
    graph = getattr(made, "graph", None)
    return graph is None or hasattr(graph, _COMMUNICATES)  # a loaded function has no graph and may communicate


def _with_order(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_forward_and_backward(attributes: Any, forward_graph: Any, backward_graph: Any) -> Any:
        _keep_order(backward_graph)
        return create(attributes, forward_graph, backward_graph)

    return create_forward_and_backward


function.FUNC_GRAPH_TRANSFORMS.append(_keep_order)
# TensorFlow does not apply these transforms to gradient functions and has no public hook for them.
# The case gradients_of_a_function_that_is_called_twice_do_not_cross fails if this private function
# moves.
concrete_function._create_forward_backward_with_graph = _with_order(
    concrete_function._create_forward_backward_with_graph
)
