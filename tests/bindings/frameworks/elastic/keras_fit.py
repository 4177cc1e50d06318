"""Elastic training with Keras' fit, as in Horovod's example: callbacks record and commit.

Ranks share each batch, so the weights equal those of one process with the complete batches. The end
checks that.
"""

import argparse
import hashlib
import os
import signal

import keras
import numpy as np

import ringcomm.keras as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--kill", type=int, nargs=2, default=None, help="epoch and batch in which rank 1 of 3 is killed")
args = parser.parse_args()
STEPS, ROWS = 4, 12

hvd.init()
keras.utils.set_random_seed(1 + hvd.rank())


def make(wrap):
    layers = [keras.layers.Dense(300, activation="tanh"), keras.layers.Dense(1)]
    made = keras.Sequential([keras.Input((8,)), *layers])
    made.compile(optimizer=wrap(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])
    return made


def rows_of(epoch, batch):
    x = np.random.default_rng([epoch, batch]).normal(size=(ROWS, 8)).astype(np.float32)
    return x, np.sin(x[:, :1])


def batches(epoch, batch, rank, size):
    while True:
        yield tuple(np.split(one, size)[rank] for one in rows_of(epoch, batch))
        epoch, batch = (epoch, batch + 1) if batch + 1 < STEPS else (epoch + 1, 0)


def values(variables):
    return [np.array(keras.ops.convert_to_numpy(one)) for one in variables]


def digest():
    return hashlib.sha1(b"".join(one.tobytes() for one in values(state.tracked()))).hexdigest()


class Watch(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if args.kill == [state.epoch, state.batch] and (hvd.rank(), hvd.size()) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        state.sizes, state.digest = [*state.sizes, hvd.size()], digest()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} batch {state.batch} loss {logs['loss']:.4f}", flush=True)


model = make(hvd.DistributedOptimizer)
state = hvd.elastic.KerasState(model, batch=0, epoch=0, sizes=[], digest="", first=model.get_weights())


def on_state_reset():
    assert digest() == state.digest, "these are not the values that were committed"
    print(f"rank {hvd.rank()} of {hvd.size()} goes on at epoch {state.epoch} batch {state.batch}", flush=True)


state.register_reset_callbacks([on_state_reset])
callbacks = [
    hvd.callbacks.MetricAverageCallback(),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    Watch(),
    hvd.elastic.CommitStateCallback(state),
]


@hvd.elastic.run
def train(state):
    data = batches(state.epoch, state.batch, hvd.rank(), hvd.size())
    epochs = args.epochs - state.epoch
    return state.model.fit(data, steps_per_epoch=STEPS, epochs=epochs, callbacks=callbacks, verbose=0)


train(state)

# ---- the same in one process, from the initial weights ---------------------------------------------------------------
alone = make(lambda optimizer: optimizer)
alone.set_weights(state.first)
alone.fit(batches(0, 0, 0, 1), steps_per_epoch=STEPS, epochs=args.epochs, verbose=0)
pairs = zip(values(model.variables), values(alone.variables), strict=True)
near = all(np.allclose(one, other, rtol=1e-4, atol=1e-5) for one, other in pairs)
if hvd.rank() == 0:
    print("sizes", *state.sizes, "as in one process" if near else "not as in one process", flush=True)
