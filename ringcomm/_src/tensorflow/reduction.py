"""Reduction of lists of TensorFlow's gradients over all ranks, for tapes and optimizers.

The base class, in `training/gradient_lists.py`, groups and scales gradients; this module has the
parts specific to TensorFlow.
"""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.tensorflow import gradients as differentiable
from ringcomm._src.tensorflow import library, operations
from ringcomm._src.tensorflow.mpi_ops import scaled, sparse_allreduce
from ringcomm._src.training import gradient_lists
from ringcomm._src.training.gradient_lists import names_of
from ringcomm._src.training.replicas import CountedCheck, with_names


class GradientReduction(gradient_lists.GradientReduction):
    def allreduce(self, gradients: list[Any], names: list[str], reduction: Reduce, algorithm: str | None) -> list[Any]:
        # If no outer tape records, runs the raw operation, which may reuse the gradients' memory.
        run = differentiable.allreduce if record.could_possibly_record() else operations.allreduce
        return run(gradients, names, True, reduction, self.process_set, algorithm)

    def gather_sparse(self, gradients: list[Any], names: list[str]) -> list[Any]:
        parts = [f"{name}.{part}" for name in names for part in ("values", "indices")]
        return sparse_allreduce(gradients, self.op, self.factors(), parts, self.process_set)

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, tf.IndexedSlices)

    def as_dense(self, gradient: Any) -> Any:
        return tf.convert_to_tensor(gradient)

    def empty_gradient(self, variable: Any) -> Any:
        return None if variable is None else tf.zeros([0], tf.as_dtype(variable.dtype).base_dtype)

    def scaled(self, gradient: Any, factor: float) -> Any:
        return scaled(gradient, factor)

    def reference(self, variable: Any) -> Any:
        unwrapped = _unwrap(variable)
        return unwrapped.ref() if hasattr(unwrapped, "ref") else id(unwrapped)

    def is_variable(self, variable: Any) -> bool:
        return isinstance(_unwrap(variable), tf.Variable)

    def compare_replicas(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        names, unwrapped = names_of(variables), [_unwrap(variable) for variable in variables]
        if tf.executing_eagerly():
            if run := check.due():
                check.compare_arrays(run, names, [variable.numpy() for variable in unwrapped])
            return gradients
        flat = [gradient for gradient in tf.nest.flatten(gradients, expand_composites=True) if gradient is not None]
        with tf.control_dependencies(flat):  # so that the program's earlier writes are done
            if tf.compat.v1.executing_eagerly_outside_functions():  # Python can read the graph's variables
                references = [weakref.ref(variable) for variable in unwrapped]
                library.run(check.graph_operation((), partial(_present, names, references)), [], [tf.uint8], [[1]])
                return gradients  # a function runs the reduction after this: both have side effects
            inputs = [tf.convert_to_tensor(variable) for variable in unwrapped]
            description = check.graph_operation([tensor.dtype.name for tensor in inputs], partial(with_names, names))
            outputs = library.run(description, inputs, [tf.uint8], [[1]])
        with tf.control_dependencies(outputs):
            return tf.nest.map_structure(tf.identity, gradients, expand_composites=True)

    @staticmethod
    def is_in_a_graph(variable: Any) -> bool:
        handle, function = variable.value.handle, tf.types.experimental.ConcreteFunction
        traced = (instance for instance in gc.get_objects() if issubclass(type(instance), function))
        return any(captured is handle for graph_function in traced for captured in graph_function.captured_inputs)


def _present(names: list[str], references: list[Any], _: list[Any]) -> tuple[list[str], list[Any]]:
    """Returns names and values of the variables that still exist."""
    pairs = [(name, reference()) for name, reference in zip(names, references, strict=True)]
    present = [(name, variable.numpy()) for name, variable in pairs if variable is not None]
    return [name for name, _ in present], [value for _, value in present]


def _unwrap(variable: Any) -> Any:
    """Returns the TensorFlow variable inside a Keras variable, else `variable` itself."""
    inner = getattr(variable, "value", None)
    return inner if isinstance(inner, tf.Variable) else variable
