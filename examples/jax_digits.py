"""Trains a small network on scikit-learn's handwritten digits with JAX and optax, on all ranks.

    ringrun -np 2 python examples/jax_digits.py

Every global batch is the same for any number of ranks; each rank computes its shard of it, and
gradients are averaged.
"""

import argparse
import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import ringcomm.jax as rc


def load_data():
    """Returns 8 x 8 images scaled to [0, 1]; every fifth is for the test."""
    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[::5], order[np.arange(len(order)) % 5 != 0]
    return images[train], labels[train], images[test], labels[test]


def make_parameters(seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    return [
        {"w": jax.random.normal(key, (before, after)) * before**-0.5, "b": jnp.zeros(after)}
        for key, before, after in zip(keys, (64, 64), (64, 10), strict=True)
    ]


def network(parameters, images):
    hidden = jax.nn.relu(images @ parameters[0]["w"] + parameters[0]["b"])
    return hidden @ parameters[1]["w"] + parameters[1]["b"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=48, help="global batch: all ranks together")
    options = parser.parse_args()
    rc.init()
    images, labels, test_images, test_labels = load_data()
    parameters = make_parameters(seed=rc.rank())  # different on each rank, until rank 0's are broadcast
    parameters = rc.broadcast_parameters(parameters, root_rank=0)
    optimizer = rc.distributed(optax.adam(3e-3), op=rc.Sum)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, x, y):
        def loss(parameters):
            logits = network(parameters, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).sum() / options.batch

        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, rc.allreduce(value, op=rc.Sum, name="loss")

    order = np.random.default_rng(1)
    for epoch in range(options.epochs):
        rows = order.permutation(len(labels))
        rows = rows[: len(rows) // options.batch * options.batch].reshape(-1, options.batch)
        for batch in rows:
            mine = np.array_split(batch, rc.size())[rc.rank()]
            parameters, state, loss = step(parameters, state, images[mine], labels[mine])
        if rc.rank() == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: training loss {float(loss):.4f}", flush=True)

    right = np.argmax(network(parameters, test_images), 1) == test_labels
    leaves = [np.asarray(one).tobytes() for one in jax.tree.leaves(parameters)]
    hashes = rc.allgather_object(hashlib.sha256(b"".join(leaves)).hexdigest())
    if rc.rank() == 0:
        print(f"test accuracy: {right.mean():.3f}")
        same = "identical bits" if len(set(hashes)) == 1 else "DIFFERENT"
        print(f"weights: {same} on all {rc.size()} ranks (sha256 {hashes[0][:16]})")
    rc.shutdown()
    return 0 if len(set(hashes)) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
