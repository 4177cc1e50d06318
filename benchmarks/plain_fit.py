"""Keras steps on TensorFlow in a process that does not use ringcomm, for benchmarks/frameworks.py.

It reads one line of standard input for each step.

"fit" is a step of `model.fit`, alone. Under MultiWorkerMirroredStrategy Keras 3.15's `fit` raises,
so "mirrored" is a training loop by `strategy.run` with the same model, optimizer and data; "loop"
is that loop alone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow", TF_ENABLE_ONEDNN_OPTS="1")

LAYERS, WIDTH, BATCH = 8, 2048, 32  # 134 MB of gradients


def make_model(optimizer: Callable[[Any], Any] = lambda one: one) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((WIDTH,)), *(keras.layers.Dense(WIDTH) for _ in range(LAYERS))])
    model.compile(optimizer=optimizer(keras.optimizers.SGD(1e-3)), loss="mse", jit_compile=False)
    return model


def batch_of(rank: int) -> Any:
    import numpy as np

    return np.random.default_rng(rank).normal(size=(BATCH, WIDTH)).astype(np.float32)


def fit_step(model: Any, rank: int) -> Callable[[], float]:
    """Returns a step of `model.fit`; it returns the seconds from its batch's beginning to its end."""
    import keras

    x = batch_of(rank)

    class Watch(keras.callbacks.Callback):
        seconds = 0.0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begun = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seconds = time.perf_counter() - self.begun

    watch = Watch()

    def step() -> float:
        model.fit(x, x, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[watch])
        return watch.seconds

    return step


def loop_step(strategy: Any, rank: int, size: int) -> Callable[[], float]:
    """Returns a training step under `strategy`: Keras sums the gradients of `size` ranks."""
    import tensorflow as tf

    with strategy.scope():
        model = make_model()
    weights = [one.value for one in model.trainable_variables]

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - x)) / size
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), model.trainable_variables, strict=True))
        return loss

    @tf.function
    def run(x: Any) -> Any:
        return strategy.run(train, args=(x,))

    x = tf.constant(batch_of(rank))

    def step() -> float:
        begun = time.perf_counter()
        float(run(x))
        return time.perf_counter() - begun

    return step


def one_thread() -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)


class PlainFit:
    """The process, as the rank that controls it uses it."""

    def __init__(self, kind: str, rank: int, ports: list[int]) -> None:
        job = ("PMI", "MPI", "OMPI_", "HYD", "PRTE")  # a separate process outside any job
        variables = {key: value for key, value in os.environ.items() if not key.startswith(job)}
        command = [sys.executable, __file__, kind, str(rank), json.dumps(ports)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)

    def seconds(self) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("step "):
                return float(line.split()[1])
        raise SystemExit(f"the process of the plain steps has ended with {self._process.wait()}")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(kind: str, rank: int, ports: list[int]) -> None:
    if kind == "mirrored":
        workers = [f"127.0.0.1:{port}" for port in ports]
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        )
    import tensorflow as tf

    one_thread()
    if kind == "fit":
        step = fit_step(make_model(), rank)
    elif kind == "loop":
        step = loop_step(tf.distribute.get_strategy(), rank, 1)
    else:
        step = loop_step(tf.distribute.MultiWorkerMirroredStrategy(), rank, len(ports))
    for _ in sys.stdin:
        print("step", step(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
