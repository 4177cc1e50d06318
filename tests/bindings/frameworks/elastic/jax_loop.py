"""Elastic training of JAX's pytrees: parameters, optax's moments, random keys.

At the end it repeats the training in one process, as the ranks did it, and compares.
"""

import argparse
import hashlib
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ringcomm.jax as rc

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, default=8)
parser.add_argument("--kill", type=int, default=-1, help="the batch in which rank 1 of 3 is killed")
args = parser.parse_args()

rc.init()
plain = optax.adam(1e-2)
optimizer = rc.distributed(plain)


def batch_of(number, rank):
    x = np.random.default_rng([number, rank]).normal(size=(8, 5)).astype(np.float32)
    return x, np.sin(x[:, :1])


def loss_of(parameters, x, y):
    return jnp.mean((jnp.tanh(x @ parameters["first"]) @ parameters["second"] - y) ** 2)


def gradients_of(parameters, key, x, y):
    key, noise = jax.random.split(key)
    return jax.value_and_grad(loss_of)(parameters, x + jax.random.normal(noise, x.shape), y), key


@jax.jit
def step(parameters, moments, key, x, y):
    (loss, gradients), key = gradients_of(parameters, key, x, y)
    updates, moments = optimizer.update(gradients, moments, parameters)
    return optax.apply_updates(parameters, updates), moments, key, loss


@rc.elastic.run
def train(state):
    while state.batch < args.batches:
        if (state.batch, rc.rank(), rc.size()) == (args.kill, 1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch_of(state.batch, rc.rank())
        state.parameters, state.moments, state.key, loss = step(state.parameters, state.moments, state.key, x, y)
        if rc.rank() == 0:
            print(f"batch {state.batch} loss {float(loss):.4f}", flush=True)
        state.batch += 1
        state.sizes, state.digest = [*state.sizes, rc.size()], digest()
        state.commit()


def values():
    trees = state.parameters, state.moments, jax.random.key_data(state.key)
    return [np.asarray(one) for one in jax.tree.leaves(trees)]


def digest():
    return hashlib.sha1(b"".join(one.tobytes() for one in values())).hexdigest()


def on_reset():
    assert digest() == state.digest, "these are not the values that were committed"
    print(f"rank {rc.rank()} of {rc.size()} goes on at batch {state.batch}", flush=True)


keys = jax.random.split(jax.random.key(rc.rank()), 3)
parameters = {"first": jax.random.normal(keys[0], (5, 300)), "second": jax.random.normal(keys[1], (300, 1))}
everything = {"parameters": parameters, "moments": plain.init(parameters), "key": keys[2]}
state = rc.elastic.ObjectState(**everything, batch=0, sizes=[], digest="", first=everything)
state.register_reset_callbacks([on_reset])
train(state)

# ---- the same in one process, from the initial values ----------------------------------------------------------------
trained = values()
state.parameters, state.moments, state.key = state.first["parameters"], state.first["moments"], state.first["key"]
for number, size in enumerate(state.sizes):
    of_ranks = [jax.jit(gradients_of)(state.parameters, state.key, *batch_of(number, rank)) for rank in range(size)]
    state.key = of_ranks[0][1]
    means = jax.tree.map(lambda *ones: sum(ones) / len(ones), *(gradients for (_, gradients), _ in of_ranks))
    updates, state.moments = jax.jit(plain.update)(means, state.moments, state.parameters)
    state.parameters = optax.apply_updates(state.parameters, updates)
near = all(np.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(values(), trained, strict=True))
if rc.rank() == 0:
    print("sizes", *state.sizes, "as in one process" if near else "not as in one process", flush=True)
