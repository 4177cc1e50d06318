"""Trains a small CNN on scikit-learn's handwritten digits with Keras 3, on all ranks.

    KERAS_BACKEND=jax ringrun -np 2 python examples/keras_digits.py        # or tensorflow, or torch

Each rank fits on every n-th image, with the learning rate raised in proportion; gradients and
metrics are averaged.
"""

import argparse
import hashlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits

import ringcomm.keras as hvd

if keras.backend.backend() == "torch":
    import torch

    torch.set_num_threads(1)  # small layers lose more by waiting for threads than they gain


def load_data():
    """Returns 8 x 8 images scaled to [0, 1]; every fifth is for the test."""
    digits = load_digits()
    images, labels = digits.images[..., None].astype(np.float32) / 16, digits.target
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[::5], order[np.arange(len(order)) % 5 != 0]
    train = train[: len(train) // hvd.size() * hvd.size()]  # equally many steps on all ranks
    return images[train], labels[train], images[test], labels[test]


def make_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="of all ranks together")
    options = parser.parse_args()
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())  # different weights on each rank, until rank 0's are broadcast
    images, labels, test_images, test_labels = load_data()
    model = make_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(3e-3)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        images[hvd.rank() :: hvd.size()],
        labels[hvd.rank() :: hvd.size()],
        batch_size=max(1, options.batch // hvd.size()),
        epochs=options.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(3e-3, warmup_epochs=2),
        ],
    )
    right = np.argmax(model.predict(test_images, verbose=0), 1) == test_labels
    values = [np.asarray(keras.ops.convert_to_numpy(one)).tobytes() for one in model.trainable_variables]
    hashes = hvd.allgather_object(hashlib.sha256(b"".join(values)).hexdigest())
    if hvd.rank() == 0:
        print(f"test accuracy: {right.mean():.3f}")
        same = "identical bits" if len(set(hashes)) == 1 else "DIFFERENT"
        print(f"weights: {same} on all {hvd.size()} ranks (sha256 {hashes[0][:16]})")
    hvd.shutdown()
    return 0 if len(set(hashes)) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
