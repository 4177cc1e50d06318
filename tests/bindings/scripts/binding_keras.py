"""`ringcomm.keras` for `script_ranks`, on TensorFlow and JAX: names, reference, mutants."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

BACKEND = os.environ["KERAS_BACKEND"]
if BACKEND == "jax":
    import binding_jax as backend
else:
    import binding_tensorflow as backend  # type: ignore[no-redef]

import keras  # noqa: E402
import numpy as np  # noqa: E402
from script_parts import PlainRanks, Watched  # noqa: E402

import ringcomm.keras as product  # noqa: E402
from ringcomm._src.keras import optimizer as product_optimizer  # noqa: E402
from ringcomm._src.training.gradient_lists import GradientReduction  # noqa: E402

FAILURES = backend.FAILURES


def tolerance(text: str) -> float:
    """Returns the relative tolerance of the script's results."""
    return 1e-3


# ---- the reference ---------------------------------------------------------------------------------------------------
class PlainMetrics(keras.callbacks.Callback):
    def __init__(self, hvd: Any) -> None:
        super().__init__()
        self.hvd = hvd

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        every = self.hvd.gather(dict(logs))
        logs.update({name: float(np.mean([one[name] for one in every])) for name in logs})


class PlainBroadcast(keras.callbacks.Callback):
    def __init__(self, hvd: Any, root_rank: int) -> None:
        super().__init__()
        self.hvd, self.root = hvd, root_rank

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.hvd.broadcast_variables([*self.model.weights, *self.model.optimizer.variables], self.root)


class PlainCallbacks:
    """Callbacks of the reference. Those of learning rates are ringcomm's, without messages."""

    LearningRateWarmupCallback = product.callbacks.LearningRateWarmupCallback
    LearningRateScheduleCallback = product.callbacks.LearningRateScheduleCallback

    def __init__(self, hvd: Any) -> None:
        self.hvd = hvd

    def BroadcastGlobalVariablesCallback(self, root_rank: int) -> Any:
        return PlainBroadcast(self.hvd, root_rank)

    def MetricAverageCallback(self) -> Any:
        return PlainMetrics(self.hvd)


class Plain(PlainRanks):
    Compression = product.Compression

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.inner, self.callbacks = backend.Plain(comm), PlainCallbacks(self)

    def allreduce(self, value: Any, name: str = "") -> Any:
        return np.mean(self.gather(np.asarray(value)), axis=0)

    def broadcast_variables(self, variables: Any, root_rank: int) -> None:
        for one, value in zip(variables, self.gather([np.asarray(one) for one in variables])[root_rank], strict=True):
            one.assign(value)

    def load_model(self, path: str, custom_objects: Any) -> Any:
        model = keras.models.load_model(path, custom_objects=custom_objects)
        self.DistributedOptimizer(model.optimizer)
        return model

    def reduced(self, gradients: list[Any], op: str | None, as_dense: bool) -> list[Any]:
        if BACKEND == "jax":
            return list(self.inner._send(gradients, op))
        return list(self.inner.reduced(gradients, op, None, as_dense))

    def DistributedOptimizer(
        self,
        optimizer: Any,
        op: str | None = None,
        sparse_as_dense: bool = False,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        **others: Any,
    ) -> Any:
        """Returns the same object as an instance of a subclass, which its copies belong to as well."""
        if backward_passes_per_step > 1:
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            if inner.gradient_accumulation_steps not in (None, backward_passes_per_step):
                raise ValueError("pass backward_passes_per_step or gradient_accumulation_steps, not both")
            inner.gradient_accumulation_steps = backward_passes_per_step
        factor = 1 if average_aggregated_gradients else backward_passes_per_step
        optimizer.__class__ = plain_class(type(optimizer), self, (op, sparse_as_dense), factor)
        return optimizer


def plain_class(base: Any, hvd: Plain, how: Any, factor: int) -> Any:
    def reduced(grads: Any) -> list[Any]:
        grads = [None if one is None else one for one in grads]
        return [backend_scaled(one, factor) for one in hvd.reduced(grads, *how)]

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        return base.apply(self, reduced(grads), trainable_variables)

    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        return base.stateless_apply(self, optimizer_variables, reduced(grads), trainable_variables)

    own: dict[str, Any] = {"apply": apply, "__module__": base.__module__, "__qualname__": base.__qualname__}
    if issubclass(base, keras.optimizers.LossScaleOptimizer) and BACKEND == "jax":
        own = own | {"stateless_apply": stateless_apply}
        del own["apply"]
    made = type(base.__name__, (base,), own)

    def copied(self: Any, memo: Any = None) -> Any:
        one = base.from_config(base.get_config(self))
        one.__class__ = made
        return one

    made.__deepcopy__ = copied  # type: ignore[attr-defined]
    made.copied = copied  # type: ignore[attr-defined]
    return made


def backend_scaled(gradient: Any, factor: int) -> Any:
    if gradient is None or factor == 1:
        return gradient
    return gradient * factor if BACKEND == "jax" else backend.scaled(gradient, factor)


# ---- names in scripts ------------------------------------------------------------------------------------------------
@keras.saving.register_keras_serializable("drawn")
class Custom(keras.Sequential):
    """A model with a custom training step, on TensorFlow."""

    def train_step(self, *data: Any) -> Any:
        if BACKEND != "tensorflow":
            return super().train_step(*data)
        import tensorflow as tf

        x, y = data[0][:2]
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def dense(units: int, **named: Any) -> Any:
    return keras.layers.Dense(units, kernel_initializer=keras.initializers.RandomNormal(seed=units), **named)


def words() -> Any:
    table = keras.layers.Embedding(7, 3, embeddings_initializer=keras.initializers.RandomNormal(seed=3))
    split = [keras.layers.Lambda(chosen), table, keras.layers.Flatten(), dense(2)]
    return keras.Sequential([keras.Input((5,)), *split])


@keras.saving.register_keras_serializable("drawn")
def chosen(x: Any) -> Any:
    return keras.ops.cast(keras.ops.abs(x) * 3, "int32") % 7


def mlp(kind: Any = keras.Sequential) -> Any:
    return kind([keras.Input((5,)), dense(4, activation="tanh"), dense(2)])


def normed() -> Any:
    layers = [dense(4), keras.layers.LayerNormalization(), dense(3, activation="tanh"), dense(2)]
    return keras.Sequential([keras.Input((5,)), *layers])


def partly_frozen() -> Any:
    model = normed()
    model.layers[0].trainable = False
    return model


def clone(optimizer: Any) -> Any:
    """Returns a copy made from the configuration, as Keras' documentation does it."""
    if hasattr(type(optimizer), "copied"):
        return optimizer.copied()
    return type(optimizer).from_config(optimizer.get_config())


class User(Watched):
    def data(self, rows: int) -> tuple[Any, Any]:
        random = self.random()
        return random.standard_normal((rows, 5)), random.standard_normal((rows, 2))

    def see(self, model: Any) -> None:
        for i, one in enumerate(model.weights):
            self.note(f"weight{i}", keras.ops.convert_to_numpy(one))
        self.note("iterations", int(keras.ops.convert_to_numpy(model.optimizer.iterations)))

    def note_history(self, history: Any) -> None:
        for name, values in sorted(history.history.items()):
            self.note(name, np.array(values))

    def folder(self) -> str:
        return str(Path(self.space["temporary"].name, f"model{self.batches}.keras"))

    def names(self) -> dict[str, Any]:
        keras.backend.clear_session()
        hvd, plain = self.hvd, self.plain
        self.space: dict[str, Any] = {"hvd": hvd, "rank": hvd.rank(), "size": hvd.size(), "clone": clone}
        self.space |= {"data": self.data, "see": self.see, "note": self.note, "note_history": self.note_history}
        self.space |= {"mlp": mlp, "words": words, "normed": normed, "partly_frozen": partly_frozen}
        self.space |= {"custom": lambda: mlp(Custom), "folder": self.folder, "known": {"Custom": Custom}}
        self.space |= {"temporary": tempfile.TemporaryDirectory()}
        again = clone if plain else lambda one: pickle.loads(pickle.dumps(one))
        back = clone if plain else lambda one: keras.optimizers.deserialize(keras.optimizers.serialize(one))
        self.space |= {"pickled": again, "deserialized": back}
        self.space |= {"keras": keras, "np": np, "copy": copy}
        return self.space


# ---- mutants ---------------------------------------------------------------------------------------------------------
def leaves_out_the_last() -> Any:
    """The last dense gradient is not reduced."""
    kind = product_optimizer.reduction_class()
    real = kind.allreduce

    def reduced(self: Any, given: Any, *how: Any) -> Any:
        return [*real(self, given, *how)[:-1], given[-1]]

    return mock.patch.object(kind, "allreduce", reduced)


def copies_average() -> Any:
    """The copy of an optimizer that sums takes averages."""
    real = GradientReduction.for_copy

    def copied(self: Any, name: str) -> Any:
        made = real(self, name)
        made.op = product.Average
        return made

    return mock.patch.object(GradientReduction, "for_copy", copied)


MUTANTS = {one.__name__: one for one in (leaves_out_the_last, copies_average)}


@contextlib.contextmanager
def mutated(name: str, plain: Any) -> Iterator[Any]:
    with MUTANTS[name]():
        yield product
