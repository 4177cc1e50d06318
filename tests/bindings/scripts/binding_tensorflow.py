"""`ringcomm.tensorflow` for `script_ranks`: names, mutants, reference by numpy_function."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers
from script_parts import PlainRanks, PlainSet, Watched

import ringcomm.tensorflow as product
from ringcomm._src.tensorflow import gradients, mpi_ops, reduction

FAILURES: tuple[type[Exception], ...] = (tf.errors.OpError,)

tf.config.threading.set_inter_op_parallelism_threads(2)
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.get_logger().setLevel("ERROR")  # scripts retrace the same functions many times


def tolerance(text: str) -> float:
    """Returns the relative tolerance of the script's results."""
    return 1e-3 if "float32" in text or "optimizers." in text else 1e-7  # learning rates of optimizers are float32


# ---- the reference ---------------------------------------------------------------------------------------------------
class Plain(PlainRanks):
    Compression = product.Compression

    def _run(self, work: Any, tensors: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
        results = tf.numpy_function(lambda *given: work(list(given)), list(tensors), [one.dtype for one in tensors])
        results = list(results) if isinstance(results, list | tuple) else [results]
        for result, shape in zip(results, shapes, strict=True):
            result.set_shape(shape)
        return results

    def means(self, tensors: Sequence[Any], op: str | None = None, members: PlainSet | None = None) -> list[Any]:
        """Returns the means, or sums, of tensors. The gradient is reduced in the same way."""

        @tf.custom_gradient
        def run(*given: Any) -> Any:
            made = self._run(
                lambda arrays: self.mean(arrays, op or self.Average, members), given, [g.shape for g in given]
            )
            return made, lambda *back: self.means(back, op, members)

        made = run(*map(tf.convert_to_tensor, tensors)) if tensors else []
        return list(made) if isinstance(made, list | tuple) else [made]

    def _rows(self, tensor: Any, members: PlainSet) -> Any:
        """Returns the rows of all members. The gradient is averaged, and each rank takes its rows."""

        def work(arrays: list[Any]) -> list[Any]:
            parts = [given for rank, (given,) in self.gather((self._rank, arrays)) if rank in members.ranks]
            return [np.concatenate(parts)] if self._rank in members.ranks else arrays

        def before(arrays: list[Any]) -> list[Any]:
            counts = dict(self.gather((self._rank, int(arrays[0]))))
            return [np.asarray(sum(counts[one] for one in members.ranks if one < self._rank), np.int32)]

        @tf.custom_gradient
        def run(given: Any) -> Any:
            (first,) = self._run(before, [tf.shape(given)[0]], [[]])
            (whole,) = self._run(work, [given], [[None, *given.shape[1:]]])
            return whole, lambda back: self.means([back], members=members)[0][first : first + tf.shape(given)[0]]

        return run(tf.convert_to_tensor(tensor))

    def reduced(self, given: Sequence[Any], op: str | None, members: PlainSet | None, as_dense: bool) -> list[Any]:
        """Returns the gradients of a step; IndexedSlices keep the rows of all ranks."""
        members = members or self.global_process_set
        results = [tf.convert_to_tensor(one) if as_dense and one is not None else one for one in given]
        sparse = [i for i, one in enumerate(results) if isinstance(one, tf.IndexedSlices)]
        dense = [i for i, one in enumerate(results) if one is not None and i not in sparse]
        for i, one in zip(dense, self.means([results[i] for i in dense], op, members), strict=True):
            results[i] = one
        inside = self._rank in members.ranks and (op or self.Average) == self.Average
        for i in sparse:
            values, indices = (self._rows(one, members) for one in (results[i].values, results[i].indices))
            values = values / len(members.ranks) if inside else values
            results[i] = tf.IndexedSlices(values, indices, results[i].dense_shape)
        return results

    def allreduce(self, tensor: Any, op: str | None = None, name: str = "") -> Any:
        return self.reduced([tensor], op, None, False)[0]

    def grouped_allreduce(self, tensors: Any, name: str = "") -> Any:
        return self.means(tensors)

    def allgather(self, tensor: Any) -> Any:
        return self._rows(tensor, self.global_process_set)

    def broadcast(self, tensor: Any, root_rank: int) -> Any:
        return self._run(lambda arrays: self.gather(arrays)[root_rank], [tensor], [tensor.shape])[0]

    def broadcast_variables(self, variables: Any, root_rank: int) -> None:
        for one, value in zip(variables, self.gather([one.numpy() for one in variables])[root_rank], strict=True):
            one.assign(value)

    def DistributedGradientTape(
        self,
        tape: Any,
        op: str | None = None,
        sparse_as_dense: bool = False,
        process_set: PlainSet | None = None,
        **others: Any,
    ) -> Any:
        """Returns the same object as an instance of a subclass.

        `others` affect how gradients are sent, not their values.
        """
        local: list[Any] = []
        base = type(tape)

        class PlainTape(base):  # type: ignore[misc, valid-type]
            @staticmethod
            def register_local_source(source: Any) -> None:
                local.append(source.ref())

            @staticmethod
            def gradient(target: Any, sources: Any, *args: Any, **named: Any) -> Any:
                given = base.gradient(tape, target, sources, *args, **named)
                flat, of = tf.nest.flatten(given), tf.nest.flatten(sources)
                mine = [one.ref() in local for one in of]
                sent = [None if own else one for one, own in zip(flat, mine, strict=True)]
                made = self.reduced(sent, op, process_set, sparse_as_dense)
                for i, own in enumerate(mine):
                    if own and flat[i] is not None:
                        made[i] = scaled(flat[i], 1 / self._size)
                return tf.nest.pack_sequence_as(given, made)

        tape.__class__ = PlainTape
        return tape

    def DistributedOptimizer(
        self,
        optimizer: Any,
        op: str | None = None,
        sparse_as_dense: bool = False,
        process_set: PlainSet | None = None,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        **others: Any,
    ) -> Any:
        """Returns the same object as an instance of a subclass."""
        base: Any = type(optimizer)
        hvd, how = self, (op, process_set, sparse_as_dense)
        if isinstance(optimizer, tf.compat.v1.train.Optimizer):

            def compute_gradients(self: Any, *args: Any, **named: Any) -> Any:
                pairs = base.compute_gradients(self, *args, **named)
                return list(zip(hvd.reduced([one for one, _ in pairs], *how), [one for _, one in pairs], strict=True))

            optimizer.__class__ = type(base.__name__, (base,), {"compute_gradients": compute_gradients})
            return optimizer
        factor = 1 if average_aggregated_gradients else backward_passes_per_step
        if backward_passes_per_step > 1:
            optimizer.gradient_accumulation_steps = backward_passes_per_step

        def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            made = hvd.reduced(list(grads), *how)
            return base.apply(self, [one if one is None else scaled(one, factor) for one in made], trainable_variables)

        optimizer.__class__ = type(base.__name__, (base,), {"apply": apply})
        return optimizer


# ---- names in scripts ------------------------------------------------------------------------------------------------
def scaled(gradient: Any, factor: float) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient * tf.cast(factor, gradient.dtype)


class Net:
    def __init__(self, dtype: str, extra: bool, table: bool, rank: int = -1) -> None:
        """Creates the variables.

        `extra`: adds an unused variable. `rank`: adds three heads, of which this rank uses one.
        """
        random = np.random.default_rng(7)
        self.dtype, self.table, self.rank = dtype, table, rank
        shapes = [(7, 5) if table else (5, 4), (4,), (4, 2), (2,), *[(2,)] * extra]
        if table:
            shapes.insert(1, (5, 4))
        if rank >= 0:
            shapes += [(2,)] * 3
        self.variables = [
            tf.Variable(random.standard_normal(shape), dtype=dtype, name=f"v{i}") for i, shape in enumerate(shapes)
        ]

    def __call__(self, x: Any) -> Any:
        rest = list(self.variables)
        if self.table:
            x = tf.gather(rest.pop(0), tf.cast(tf.abs(x[:, 0]) * 3, tf.int32) % 7)
        x = tf.tanh(tf.cast(x, rest[0].dtype) @ rest[0] + rest[1]) @ rest[2] + rest[3]
        return x + rest[4 + self.rank % 3] if self.rank >= 0 else x

    def __deepcopy__(self, memo: Any) -> Net:
        made = copy.copy(self)
        made.variables = [tf.Variable(one) for one in self.variables]
        return made


def loss(net: Net, x: Any, y: Any) -> Any:
    return tf.reduce_mean((net(x) - tf.cast(y, net.variables[0].dtype)) ** 2)


class User(Watched):
    def batch(self, rows: int = 3) -> tuple[Any, Any]:
        random, shape = self.random(), rows + self.hvd.rank()
        return tf.constant(random.standard_normal((shape, 5))), tf.constant(random.standard_normal((shape, 2)))

    def note(self, name: str, value: Any) -> None:
        super().note(name, tf.convert_to_tensor(value) if isinstance(value, tf.IndexedSlices) else value)

    def see(self, *values: Any) -> None:
        for i, one in enumerate(values):
            self.note(f"value{i}", one)
        for i, one in enumerate(self.space["net"].variables):
            self.note(f"net.{i}", one.numpy())

    def names(self) -> dict[str, Any]:
        hvd = self.hvd
        keras.backend.clear_session()
        self.space: dict[str, Any] = {"hvd": hvd, "rank": hvd.rank(), "size": hvd.size(), "loss": loss}
        self.space |= {"batch": self.batch, "see": self.see, "note": self.note, "scaled": scaled}
        self.space |= {
            "mlp": lambda dtype="float64", extra=False: Net(dtype, extra, False),
            "words": lambda dtype="float64", extra=False: Net(dtype, extra, True),
            "chosen": lambda: Net("float64", False, False, hvd.rank()),
            "part": tf.function(lambda net, x, y: hvd.allreduce(loss(net, x, y))),
            "dense": tf.convert_to_tensor,
            "note_total": tf.Variable(0.0),
            "signature": [tf.TensorSpec([None, 5], tf.float64), tf.TensorSpec([None, 2], tf.float64)],
        }
        self.space |= {"tf": tf, "np": np, "optimizers": optimizers, "copy": copy}
        return self.space


# ---- mutants ---------------------------------------------------------------------------------------------------------
def sums_slices() -> Any:
    """Sparse gradients are summed instead of averaged."""

    def gathered(slices: Any, op: Any, *rest: Any) -> Any:
        return mpi_ops.sparse_allreduce(slices, mpi_ops.Sum, *rest)

    return mock.patch.object(reduction, "sparse_allreduce", gathered)


def leaves_out_the_last() -> Any:
    """The last dense gradient is not reduced."""
    real = reduction.GradientReduction.allreduce

    def reduced(self: Any, given: Any, *how: Any) -> Any:
        return [*real(self, given, *how)[:-1], given[-1]]

    return mock.patch.object(reduction.GradientReduction, "allreduce", reduced)


def sums_in_the_backward_pass() -> Any:
    """The gradient of an average is the sum instead of the average."""
    real = gradients.allreduce

    def reduced(tensors: Any, name: Any, grouped: bool, how: Any, *rest: Any) -> Any:
        back = isinstance(name, str) and name.endswith(".gradient")
        return real(tensors, name, grouped, gradients.SUM if back or (name is None and in_gradient()) else how, *rest)

    def in_gradient() -> bool:
        return "gradient" in tf.get_current_name_scope()

    return mock.patch.object(gradients, "allreduce", reduced)


MUTANTS = {one.__name__: one for one in (sums_slices, leaves_out_the_last, sums_in_the_backward_pass)}


@contextlib.contextmanager
def mutated(name: str, plain: Any) -> Iterator[Any]:
    with MUTANTS[name]():
        yield product
