"""The order of collectives in TensorFlow's graphs.

All runs of a collective have the same name, so every rank must run them in the same order.
TensorFlow guarantees the program's order only for operations that write one variable, and for
operations with side effects and no variables. It does not order calls of functions that only read
variables, the gradient functions of tapes outside of functions, or a graph of TensorFlow 1. This
module adds the missing control dependencies.
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


def run_in_order(run: Callable[[], Any]) -> Any:
    """Adds the collective of `run` to the current graph.

    A graph of TensorFlow 1 runs it after the previous collective.
    """
    graph = tf.compat.v1.get_default_graph()
    if getattr(graph, "building_function", False):
        setattr(graph, _COMMUNICATES, True)
        return run()
    if graph._get_control_flow_context() is not None:
        return run()
    with tf.control_dependencies([getattr(graph, _LAST)] if hasattr(graph, _LAST) else []):
        results = run()
    previous = results[0] if isinstance(results, list) and results else results
    setattr(graph, _LAST, getattr(previous, "op", previous))
    return results


def _order_collectives(graph: Any) -> None:
    """Adds control dependencies to a graph's operations that communicate.

    These operations run in the order of their creation, and all of them before a function of the
    graph ends.
    """
    previous = None
    for operation in graph.get_operations():
        if not _communicates(operation) or operation._control_flow_context is not None:
            continue
        setattr(graph, _COMMUNICATES, True)
        if previous is not None and previous not in operation.control_inputs:
            operation._add_control_input(previous)
        if operation not in graph.control_outputs:
            graph.control_outputs.append(operation)
        previous = operation


def _communicates(operation: Any) -> bool:
    if operation.type in ("RingcommRun", "PyFunc", "EagerPyFunc"):
        return True
    if operation.type not in ("StatefulPartitionedCall", "Case", "If", "While"):
        return False
    values = operation.node_def.attr.values()
    callees = [callee for value in values for callee in (value.func, *value.list.func) if callee.name]
    return any(_function_communicates(operation.graph._get_function(callee.name)) for callee in callees)


def _function_communicates(graph_function: Any) -> bool:
    graph = getattr(graph_function, "graph", None)
    return graph is None or hasattr(graph, _COMMUNICATES)  # a loaded function has no graph and may communicate


def _with_order(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_forward_and_backward(attributes: Any, forward_graph: Any, backward_graph: Any) -> Any:
        _order_collectives(backward_graph)
        return create(attributes, forward_graph, backward_graph)

    return create_forward_and_backward


function.FUNC_GRAPH_TRANSFORMS.append(_order_collectives)
# TensorFlow does not apply these transforms to gradient functions and has no public hook for them.
# The test case gradients_of_a_function_that_is_called_twice_do_not_cross fails if this private
# function moves.
concrete_function._create_forward_backward_with_graph = _with_order(
    concrete_function._create_forward_backward_with_graph
)
