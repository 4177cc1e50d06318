"""Trains a small network on scikit-learn's handwritten digits with TensorFlow, on all ranks.

    ringrun -np 2 python examples/tensorflow_digits.py

Every global batch is the same for any number of ranks; each rank computes its shard of it, and
gradients are averaged.
"""

import argparse
import hashlib
import itertools
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ringcomm.tensorflow as hvd

tf.config.threading.set_intra_op_parallelism_threads(1)  # small layers lose time by waiting for threads


def load_data():
    """Returns 8 x 8 images scaled to [0, 1]; every fifth is for the test."""
    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[::5], order[np.arange(len(order)) % 5 != 0]
    return images[train], labels[train], images[test], labels[test]


def make_weights(seed):
    random = np.random.default_rng(seed)
    sizes = [64, 64, 10]
    weights = []
    for before, after in itertools.pairwise(sizes):
        weights.append(tf.Variable(random.normal(0, before**-0.5, (before, after)).astype(np.float32)))
        weights.append(tf.Variable(tf.zeros(after)))
    return weights


def network(weights, images):
    return tf.nn.relu(images @ weights[0] + weights[1]) @ weights[2] + weights[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=48, help="global batch: all ranks together")
    options = parser.parse_args()
    hvd.init()
    images, labels, test_images, test_labels = load_data()
    weights = make_weights(seed=hvd.rank())  # different on each rank, until rank 0's are broadcast
    momentum = [tf.Variable(tf.zeros_like(one)) for one in weights]
    hvd.broadcast_variables(weights, root_rank=0)

    @tf.function(reduce_retracing=True)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(weights, x))
            loss = tf.reduce_sum(loss) / options.batch
        gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, weights)
        for weight, moving, gradient in zip(weights, momentum, gradients, strict=True):
            moving.assign(0.9 * moving + gradient)
            weight.assign_sub(0.1 * moving)
        return hvd.allreduce(loss, op=hvd.Sum, name="loss")

    order = np.random.default_rng(1)
    for epoch in range(options.epochs):
        rows = order.permutation(len(labels))
        rows = rows[: len(rows) // options.batch * options.batch].reshape(-1, options.batch)
        for batch in rows:
            mine = np.array_split(batch, hvd.size())[hvd.rank()]
            loss = step(images[mine], labels[mine])
        if hvd.rank() == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: training loss {float(loss):.4f}", flush=True)

    right = np.argmax(network(weights, test_images).numpy(), 1) == test_labels
    hashes = hvd.allgather_object(hashlib.sha256(b"".join(one.numpy().tobytes() for one in weights)).hexdigest())
    if hvd.rank() == 0:
        print(f"test accuracy: {right.mean():.3f}")
        same = "identical bits" if len(set(hashes)) == 1 else "DIFFERENT"
        print(f"weights: {same} on all {hvd.size()} ranks (sha256 {hashes[0][:16]})")
    hvd.shutdown()
    return 0 if len(set(hashes)) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
