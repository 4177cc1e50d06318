"""A custom TensorFlow training loop, as in Horovod's elastic MNIST example.

It runs the first batch without ranks, scales the learning rate by their number, and commits after
each batch. At the end it repeats the training in one process, as the ranks did it, and compares.
"""

import argparse
import hashlib
import os
import signal

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, default=8)
parser.add_argument("--kill", type=int, default=-1, help="the batch in which rank 1 of 3 is killed")
args = parser.parse_args()
LEARNING_RATE = 0.01

tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
tf.keras.utils.set_random_seed(1 + hvd.rank())

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((6, 6, 1)),
        tf.keras.layers.Conv2D(4, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.optimizers.Adam(LEARNING_RATE * hvd.size())


def batch_of(number, rank):
    generator = np.random.default_rng([number, rank])
    images = generator.normal(size=(8, 6, 6, 1)).astype(np.float32)
    return tf.constant(images), tf.constant((images.mean(axis=(1, 2, 3)) * 30).astype(np.int64) % 10)


@tf.function
def gradients_of(images, labels, allreduce):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    if allreduce:
        tape = hvd.DistributedGradientTape(tape)
    return loss, tape.gradient(loss, model.trainable_variables)


def training_step(images, labels, allreduce=True):
    loss, gradients = gradients_of(images, labels, allreduce)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


training_step(*batch_of(0, 0), allreduce=False)  # creates the optimizer's variables


@hvd.elastic.run
def train(state):
    while state.batch < args.batches:
        if (state.batch, hvd.rank(), hvd.size()) == (args.kill, 1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        loss = training_step(*batch_of(state.batch, hvd.rank()))
        if hvd.rank() == 0:
            print(f"batch {state.batch} loss {float(loss):.4f}", flush=True)
        state.batch += 1
        state.sizes, state.digest = [*state.sizes, hvd.size()], digest()
        state.commit()


def on_state_reset():
    assert digest() == state.digest, "these are not the values that were committed"
    print(f"rank {hvd.rank()} of {hvd.size()} goes on at batch {state.batch}", flush=True)
    optimizer.learning_rate.assign(LEARNING_RATE * hvd.size())


def values():
    return [one.numpy() for one in (*model.variables, *optimizer.variables)]


def digest():
    return hashlib.sha1(b"".join(one.tobytes() for one in values())).hexdigest()


state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, sizes=[], digest="", first=values())
state.register_reset_callbacks([on_state_reset])
train(state)

# ---- the same in one process, from the initial values ----------------------------------------------------------------
trained = values()
for variable, value in zip((*model.variables, *optimizer.variables), state.first, strict=True):
    variable.assign(value)
for number, size in enumerate(state.sizes):
    optimizer.learning_rate.assign(LEARNING_RATE * size)
    of_ranks = [gradients_of(*batch_of(number, rank), False)[1] for rank in range(size)]
    means = [tf.add_n(of_one) / size for of_one in zip(*of_ranks, strict=True)]
    optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
near = all(np.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(values(), trained, strict=True))
if hvd.rank() == 0:
    print("sizes", *state.sizes, "as in one process" if near else "not as in one process", flush=True)
