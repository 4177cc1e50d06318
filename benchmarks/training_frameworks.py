"""The MLP of training.py in Keras (on TensorFlow) and in JAX, with each framework's own way beside.

`training_worker.py` imports it for the tasks `keras` and `jax`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], float]
WIDTH, LAYERS, BATCH, RATE = 2048, 8, 32, 1e-3


def data(rank: int) -> Any:
    return np.random.default_rng(10 + rank).standard_normal((BATCH, WIDTH), np.float32)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# ---- Keras -----------------------------------------------------------------------------------------------------------
def quiet_tensorflow() -> Any:
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def start() -> list[Any]:
    """Returns weights and biases, equal on all ranks."""
    random = np.random.default_rng(1)
    shapes = [(WIDTH, WIDTH), (WIDTH,)] * LAYERS
    return [
        random.standard_normal(shape, np.float32) / 50 if len(shape) == 2 else np.zeros(shape, np.float32)
        for shape in shapes
    ]


def keras_step(world: Any, wrap: Callable[[Any], Any] = lambda optimizer: optimizer) -> Step:
    quiet_tensorflow()
    import keras

    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.set_weights(start())
    model.compile(wrap(keras.optimizers.SGD(RATE)), "mse", jit_compile=False)
    x, y = data(world.rank), np.zeros((BATCH, WIDTH), np.float32)
    return lambda: float(model.train_on_batch(x, y))


def keras_ringcomm(world: Any) -> Step:
    quiet_tensorflow()
    import ringcomm.keras as hvd

    hvd.init()
    return keras_step(world, hvd.DistributedOptimizer)


def tensorflow_strategy(world: Any) -> Step:
    """TensorFlow's MultiWorkerMirroredStrategy, without Keras 3, which does not support it."""
    workers = world.allgather(f"127.0.0.1:{free_port()}")
    task = {"type": "worker", "index": world.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    tf = quiet_tensorflow()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variables = [tf.Variable(array) for array in start()]
    x = tf.constant(data(world.rank))

    def train() -> Any:
        with tf.GradientTape() as tape:
            h = x
            for weight, bias in zip(variables[::2], variables[1::2], strict=True):
                h = tf.nn.relu(h @ weight + bias)
            loss = tf.reduce_mean(h**2)
        gradients = tape.gradient(loss, variables)
        averaged = tf.distribute.get_replica_context().all_reduce("mean", gradients)
        for variable, gradient in zip(variables, averaged, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss

    run = tf.function(lambda: strategy.experimental_local_results(strategy.run(train))[0])
    return lambda: float(run())


# ---- JAX -------------------------------------------------------------------------------------------------------------
def quiet_jax() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def jax_step(optimizer: Any, parameters: list[Any], x: Any) -> Step:
    import jax
    import optax

    def loss_of(parameters: Any, x: Any) -> Any:
        h = x
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            h = jax.nn.relu(h @ weight + bias)
        return (h**2).mean()

    @jax.jit
    def step(parameters: Any, state: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    state = jax.jit(optimizer.init)(parameters)

    def run() -> float:
        nonlocal parameters, state
        parameters, state, loss = step(parameters, state, x)
        return float(np.asarray(loss.addressable_data(0)))

    return run


def jax_alone(world: Any) -> Step:
    quiet_jax()
    import jax
    import optax

    return jax_step(optax.sgd(RATE), list(map(jax.numpy.asarray, start())), data(world.rank))


def jax_ringcomm(world: Any) -> Step:
    quiet_jax()
    import jax
    import optax

    import ringcomm.jax as hvd

    hvd.init()
    return jax_step(hvd.distributed(optax.sgd(RATE)), list(map(jax.numpy.asarray, start())), data(world.rank))


def jax_gloo(world: Any) -> Step:
    """JAX's way: arrays distributed over processes, and collectives that XLA inserts."""
    quiet_jax()
    import jax
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{world.bcast(free_port())}", world.size, world.rank)
    mesh = jax.make_mesh((world.size,), ("ranks",))
    place = jax.make_array_from_process_local_data
    parameters = [place(NamedSharding(mesh, PartitionSpec()), array) for array in start()]
    x = place(NamedSharding(mesh, PartitionSpec("ranks")), data(world.rank))
    return jax_step(optax.sgd(RATE), parameters, x)


CONTESTANTS: dict[str, dict[str, Callable[[Any], Step]]] = {
    "keras": {"alone": keras_step, "ringcomm": keras_ringcomm, "MultiWorkerMirroredStrategy": tensorflow_strategy},
    "jax": {"alone": jax_alone, "ringcomm": jax_ringcomm, "JAX, Gloo": jax_gloo},
}
