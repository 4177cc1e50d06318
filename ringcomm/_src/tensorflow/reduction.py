"""Reduction of lists of TensorFlow's gradients over all ranks, for tapes and optimizers.

The base class, in `training/gradient_lists.py`, groups and scales; this module has the parts specific to TensorFlow.
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
    def allreduce(self, gradients: list[Any], names: list[str], how: Reduce, algorithm: str | None) -> list[Any]:
        # If no outer tape records, runs the raw operation, which may reuse the gradients' memory.
        run = differentiable.allreduce if record.could_possibly_record() else operations.allreduce
        return run(gradients, names, True, how, self.process_set, algorithm)

    def gather_sparse(self, gradients: list[Any], names: list[str]) -> list[Any]:
        parts = [f"{name}.{part}" for name in names for part in ("values", "indices")]
        return sparse_allreduce(gradients, self.op, self.factors(), parts, self.process_set)

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, tf.IndexedSlices)

    def as_dense(self, gradient: Any) -> Any:
        return tf.convert_to_tensor(gradient)

    def nothing_for(self, variable: Any) -> Any:
        return None if variable is None else tf.zeros([0], tf.as_dtype(variable.dtype).base_dtype)

    def scaled(self, gradient: Any, factor: float) -> Any:
        return scaled(gradient, factor)

    def reference(self, variable: Any) -> Any:
        held = _held(variable)
        return held.ref() if hasattr(held, "ref") else id(held)

    def is_variable(self, variable: Any) -> bool:
        return isinstance(_held(variable), tf.Variable)

    def look(self, check: CountedCheck, gradients: list[Any], variables: list[Any]) -> list[Any]:
        names, held = names_of(variables), [_held(one) for one in variables]
        if tf.executing_eagerly():
            if run := check.due():
                check.compare_arrays(run, names, [one.numpy() for one in held])
            return gradients
        made = [one for one in tf.nest.flatten(gradients, expand_composites=True) if one is not None]
        with tf.control_dependencies(made):  # so that the program's earlier writes are done
            if tf.compat.v1.executing_eagerly_outside_functions():  # Python can read the graph's variables
                weak = [weakref.ref(one) for one in held]
                library.run(check.in_program((), partial(_present, names, weak)), [], [tf.uint8], [[1]])
                return gradients  # a function runs the reduction after this: both have side effects
            inputs = [tf.convert_to_tensor(one) for one in held]
            what = check.in_program([one.dtype.name for one in inputs], partial(with_names, names))
            looked = library.run(what, inputs, [tf.uint8], [[1]])
        with tf.control_dependencies(looked):
            return tf.nest.map_structure(tf.identity, gradients, expand_composites=True)

    @staticmethod
    def is_in_a_graph(variable: Any) -> bool:
        handle, function = variable.value.handle, tf.types.experimental.ConcreteFunction
        traced = (one for one in gc.get_objects() if issubclass(type(one), function))
        return any(captured is handle for one in traced for captured in one.captured_inputs)


def _present(names: list[str], weak: list[Any], _: list[Any]) -> tuple[list[str], list[Any]]:
    """Returns names and values of the variables that still exist."""
    pairs = [(name, one()) for name, one in zip(names, weak, strict=True)]
    here = [(name, one.numpy()) for name, one in pairs if one is not None]
    return [name for name, _ in here], [value for _, value in here]


def _held(variable: Any) -> Any:
    """Returns the TensorFlow variable inside a Keras variable, else `variable` itself."""
    inner = getattr(variable, "value", None)
    return inner if isinstance(inner, tf.Variable) else variable
