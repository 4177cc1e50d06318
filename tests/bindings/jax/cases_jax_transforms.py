"""Collectives under JAX's transformations, for framework_cases.py.

Each result is compared with that of the same collective on the arrays of all ranks in one process.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from cases_jax import fails

import ringcomm
import ringcomm.jax as rc
from ringcomm._src.jax import library

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)  # programs run on the first device, unless they are sharded

ROWS = 4  # rows of each rank; arrays that are split have this times the number of ranks


def parts(whole):
    return whole.reshape(rc.size(), whole.shape[0] // rc.size(), *whole.shape[1:])


def everywhere(value):
    return jnp.stack([value] * rc.size())


# name: the collective; its equivalent on the stacked arrays of all ranks; its first and second
# backward factor. By Horovod's rules the gradient of an allgather and a broadcast is averaged, and
# that of a reducescatter is multiplied by the number of ranks.
def table():
    size = rc.size()
    return {
        "sum": (partial(rc.allreduce, op=rc.Sum), lambda all_: everywhere(all_.sum(0)), 1, 1),
        "average": (partial(rc.allreduce, op=rc.Average), lambda all_: everywhere(all_.mean(0)), 1, 1),
        "max": (partial(rc.allreduce, op=rc.Max), lambda all_: everywhere(all_.max(0)), 1, 1),
        "scaled min": (
            partial(rc.allreduce, op=rc.Min, prescale_factor=-2.0, postscale_factor=0.5),
            lambda all_: everywhere((-2 * all_).min(0) / 2),
            1,
            1,
        ),
        "product": (partial(rc.allreduce, op=rc.Product), lambda all_: everywhere(all_.prod(0)), 1, 1),
        "allgather": (rc.allgather, lambda all_: everywhere(jnp.concatenate(all_)), 1 / size, 1 / size**2),
        "broadcast": (lambda x: rc.broadcast(x, size - 1), lambda all_: everywhere(all_[-1]), 1 / size, 1 / size**2),
        "reducescatter": (partial(rc.reducescatter, op=rc.Sum), lambda all_: parts(all_.sum(0)), size, size),
        "reducescatter max": (partial(rc.reducescatter, op=rc.Max), lambda all_: parts(all_.max(0)), 1, 1),
        "alltoall": (
            rc.alltoall,
            lambda all_: jnp.stack([jnp.concatenate(row) for row in zip(*(parts(one) for one in all_), strict=True)]),
            1,
            1,
        ),
    }


def transformations(loss, x, v):
    """Returns the transformations by name.

    `loss`: a function of an array like `x` with a scalar result. `v`: a direction.
    """
    twice = jax.jvp(jax.grad(loss), (x,), (v,))[1]
    basis = jnp.eye(x.size).reshape(-1, *x.shape)[:2]
    return {
        "value": loss(x),
        "grad": jax.grad(loss)(x),
        "jvp": jax.jvp(loss, (x,), (v,))[1],
        "forward over reverse": twice,
        "reverse over reverse": jax.grad(lambda x: jnp.vdot(jax.grad(loss)(x), v))(x),
        "columns of jax.hessian": jax.vmap(lambda one: jax.jvp(jax.grad(loss), (x,), (one,))[1])(basis),
        "vmap": jax.vmap(loss)(jnp.stack([x, 2 * x, v])),
        "remat": jax.grad(jax.checkpoint(lambda x: jnp.sin(loss(x))))(x),
        "scan": jax.grad(lambda x: jax.lax.scan(lambda c, i: (c + loss(i * x), c), 0.0, jnp.arange(1.0, 3.0))[0])(x),
        "while": jax.jvp(lambda x: jax.lax.fori_loop(0, 2, lambda i, c: c + loss((i + 1.0) * x), 0.0), (x,), (v,))[1],
        "cond": jax.grad(lambda x: jax.lax.cond(v.shape[0] > 0, loss, lambda x: x.sum(), x))(x),
    }


def expected(combine, factor, second, everybody, directions):
    """Returns every rank's expected results: gradients of the sum of losses, times a factor."""
    weights = jnp.arange(1.0, rc.size() + 1)

    def losses(everybody):
        return jax.vmap(lambda y, weight: weight * jnp.sin(y).sum())(combine(everybody), weights)

    def gradient(loss, by=factor):
        return lambda everybody: by * jax.grad(lambda everybody: loss(everybody).sum())(everybody)

    grads = gradient(losses)
    basis = jnp.eye(everybody[0].size).reshape(-1, *everybody[0].shape)[:2]
    summed = lambda f: lambda x: f(x) + f(2 * x)  # noqa: E731
    return {
        "value": losses(everybody),
        "grad": grads(everybody),
        "jvp": jax.jvp(losses, (everybody,), (directions,))[1],
        "forward over reverse": jax.jvp(grads, (everybody,), (directions,))[1],
        "reverse over reverse": second
        * jax.grad(lambda all_: jnp.vdot(gradient(losses, 1)(all_), directions))(everybody),
        "columns of jax.hessian": jnp.stack(
            [jax.jvp(grads, (everybody,), (everywhere(one),))[1] for one in basis], axis=1
        ),
        "vmap": jnp.stack([losses(one) for one in (everybody, 2 * everybody, directions)], axis=1),
        "remat": gradient(lambda all_: jnp.sin(losses(all_)))(everybody),
        "scan": gradient(summed(losses))(everybody),
        "while": jax.jvp(summed(losses), (everybody,), (directions,))[1],
        "cond": grads(everybody),
    }


def case_transformations():
    """Runs one compiled program per collective; outside of jit only those that differ there.

    Jobs with different numbers of ranks test different parts of the table.
    """
    rank, size = rc.rank(), rc.size()
    part = {2: slice(0, None, 2), 3: slice(1, None, 2)}.get(size, slice(0, None, 5))
    for name, (collective, combine, factor, second) in list(table().items())[part]:
        random = np.random.default_rng(len(name))
        everybody = jnp.asarray(random.normal(size=(size, ROWS * size, 2)))
        directions = jnp.asarray(random.normal(size=everybody.shape))
        right = jax.jit(partial(expected, combine, factor, second))(everybody, directions)

        def loss(x, collective=collective):
            return (rank + 1) * jnp.sin(collective(x)).sum()

        found = jax.jit(partial(transformations, loss))(everybody[rank], directions[rank])
        for how, value in found.items():
            np.testing.assert_allclose(value, right[how][rank], rtol=1e-9, atol=1e-12, err_msg=f"{name}: {how}")
        for how, value in (
            ("grad", jax.grad(loss)(everybody[rank])),
            ("jvp", jax.jvp(loss, (everybody[rank],), (directions[rank],))[1]),
            ("grad", jax.grad(jax.jit(loss))(everybody[rank])),
            ("remat", jax.grad(jax.checkpoint(lambda x, loss=loss: jnp.sin(loss(x))))(everybody[rank])),
        ):
            np.testing.assert_allclose(value, right[how][rank], rtol=1e-9, atol=1e-12, err_msg=f"{name}: {how}, eager")


def close(found, right):
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def case_gradients_of_uneven_rows():
    """Runs outside of jit, where ranks may pass different numbers of rows."""
    rank, size = rc.rank(), rc.size()
    given = [3, 1, 2, 4, 1][:size]
    for rows in (given, given[::-1]):
        mine = jnp.arange(2.0 * rows[rank]).reshape(rows[rank], 2) + rank
        close(jax.grad(lambda x: (rc.allgather(x) ** 2).sum())(mine), 2 * mine)
        close(jax.grad(lambda x: jax.grad(lambda x: (rc.allgather(x) ** 3).sum())(x).sum())(mine), 6 * mine / size)
        spread = jnp.tile(mine, (size, 1))
        close(jax.grad(lambda x: (rc.alltoall(x) ** 2).sum())(spread), 2 * spread)
        close(jax.jvp(rc.alltoall, (spread,), (spread,))[1], rc.alltoall(spread))
        _, back = jax.vjp(rc.alltoall, spread)
        close(jax.jit(back)(rc.alltoall(spread))[0], spread)


def case_gradients_of_extremes_and_products():
    """Ties divide the gradient, products with zeros have gradients too, and a NaN is propagated."""
    rank, size = rc.rank(), rc.size()
    x = jnp.array([1.0, float(rank), -float(rank), 0.0 if rank == 0 else 2.0])
    gradient = lambda op, x=x: jax.jit(jax.grad(lambda x: (rank + 1) * rc.allreduce(x, op=op).sum()))(x)  # noqa: E731
    total, last, first = size * (size + 1) / 2, float(rank == size - 1), float(rank == 0)
    high = last if size == 1 else float(rank > 0) / (size - 1)
    close(gradient(rc.Max), total * jnp.array([1 / size, last, first, high]))
    close(gradient(rc.Min), total * jnp.array([1 / size, first, last, first]))
    higher = np.prod([float(one) for one in range(size) if one != rank])
    others = [higher, higher * (-1.0) ** (size - 1)]
    close(gradient(rc.Product), total * jnp.array([1.0, *others, 2.0 ** (size - 1) if rank == 0 else 0.0]))
    assert jnp.isnan(gradient(rc.Max, x * jnp.nan)).all()
    for how, run in (("eager", lambda f: f), ("jit", jax.jit)):
        given = [x[:2], jnp.arange(3), jnp.array([True])]
        loss = lambda given: sum(one.sum() for one in rc.grouped_allreduce(given, op=rc.Sum, name=how))  # noqa: B023, E731
        floating, integers, booleans = run(jax.grad(loss, allow_int=True))(given)
        close(floating, jnp.full(2, float(size)))
        assert integers.dtype == booleans.dtype == jax.dtypes.float0


def case_names_of_calls():
    """Calls match if lines repeat, or ranks run different lines or compile more programs."""
    rank, size = rc.rank(), rc.size()
    tree = {f"layer {i}": jnp.full((i % 3 + 1, 300), float(rank + i)) for i in range(12)}
    mean = (size - 1) / 2
    reduce = jax.jit(lambda tree: jax.tree.map(lambda one: rc.allreduce(one), tree))
    if rank == size - 1:
        reduce.lower(tree)
    for _ in range(20):
        for name, one in reduce(tree).items():
            close(one, jnp.full_like(one, mean + int(name.split()[1])))

    @jax.jit
    def by_rank(x):
        if rank == 0:  # noqa: SIM108  the calls are on different lines
            x = rc.broadcast(x + 1, 0)
        else:
            x = rc.broadcast(x, 0)
        if rank == 0:
            return rc.allreduce(x)
        return rc.allreduce(2 * x)

    close(by_rank(jnp.zeros(3)), jnp.full(3, (2 * size - 1) / size))
    with jax.checking_leaks():
        close(jax.jit(jax.grad(lambda x: rc.allreduce(rc.allreduce(x, op=rc.Sum)).sum()))(jnp.ones(2)), [size] * 2)


def case_results_that_only_some_ranks_use():
    rank, size = rc.rank(), rc.size()

    @jax.jit
    def step(x):
        total = rc.allreduce(x, op=rc.Sum)
        return x, total if rank == 0 else None

    for _ in range(3):
        _, total = step(jnp.ones(4))
        assert rank or total[0] == size


def case_programs_compiled_ahead_of_time():
    """The second call would take JAX's fast path, which lacks the tokens for communication."""
    compiled = jax.jit(lambda x: (rc.allreduce(x * 2, op=rc.Sum), x + 1)).lower(jnp.ones(3)).compile()
    for _ in range(3):
        total, more = compiled(jnp.ones(3))
        np.testing.assert_array_equal(total, np.full(3, 2.0 * rc.size()))
        np.testing.assert_array_equal(more, np.full(3, 2.0))
    plain = jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    assert [float(plain(jnp.ones(3))[0]) for _ in range(3)] == [2.0] * 3


def case_other_collectives_at_a_place_of_a_program():
    if rc.size() == 1:
        return
    with fails(jax.errors.JaxRuntimeError, "MismatchError", "broadcast", "allreduce", "rank 0"):
        jax.block_until_ready(jax.jit(lambda x: rc.allreduce(x) if rc.rank() else rc.broadcast(x, 0))(jnp.ones(3)))
    np.testing.assert_array_equal(jax.jit(lambda x: rc.allreduce(x))(jnp.ones(3)), np.ones(3))


def case_programs_after_one_that_has_failed():
    """The failed program had been dispatched, and failed while Python continued."""
    rank, size = rc.rank(), rc.size()
    program = jax.jit(lambda x: rc.allreduce(x @ x.T, name="dispatched"))
    good, bad = jnp.ones((300, 300)), jnp.ones((300 + (rank == size - 1), 300))
    jax.block_until_ready(program(good))
    if size > 1:
        with fails(jax.errors.JaxRuntimeError, "MismatchError", "dispatched"):
            jax.block_until_ready(program(bad))
    close(program(good), jnp.full_like(good, 300))
    jax.effects_barrier()


def case_refusals():
    rank, size = rc.rank(), rc.size()
    sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
    sharded = jax.device_put(jnp.ones(4), sharding)
    with fails(ValueError, "more than 1 device", "collectives of ringcomm", "one rank for each device"):
        jax.jit(lambda x: rc.allreduce(x))(sharded)
    with fails(ValueError, "more than 1 device", "collectives of ringcomm"):
        over = jax.shard_map(
            lambda x: rc.allreduce(x), mesh=sharding.mesh, in_specs=sharding.spec, out_specs=sharding.spec
        )
        jax.jit(over)(sharded)
    with fails(ValueError, "Adasum", "jax.vmap"):
        jax.vmap(lambda x: rc.allreduce(x, op=rc.Adasum))(jnp.ones((2, 3)))
    wire = rc.Compression.onebit(everywhere=True, warmup_steps=0)
    if size > 1:
        with fails(NotImplementedError, "error feedback"):
            jax.grad(lambda x: rc.allreduce_gradients(x, compression=wire).sum())(jnp.ones(3))
    with fails(TypeError, "forward-mode"):
        jax.jvp(lambda x: rc.allreduce(x, op=rc.Adasum), (jnp.ones(3),), (jnp.ones(3),))
    if size > 1:
        with fails(ringcomm.MismatchError, "shape", f"rank {size - 1}"):
            jax.vmap(lambda x: rc.allreduce(x))(jnp.ones((2 + (rank == size - 1), 3)))
        with fails(ringcomm.MismatchError, "rank 1"):
            jax.vmap(lambda x: rc.allgather(x))(jnp.ones((2, 1 + (rank == 1))))


def case_skipped_steps_of_optax():
    """If one rank skips a step, all raise an error; if gradients are reduced first, all skip."""
    import optax

    rank, size = rc.rank(), rc.size()
    weights = {"w": jnp.ones(3)}
    bad = {"w": jnp.where(rank == size - 1, jnp.nan, jnp.ones(3))}

    def steps(optimizer):
        state, update = optimizer.init(weights), jax.jit(optimizer.update)
        for gradients in (weights, bad, weights):
            updates, state = jax.block_until_ready(update(gradients, state))
        return updates, state

    updates, state = steps(rc.distributed(optax.apply_if_finite(optax.sgd(1.0), 5)))
    close(updates["w"], -np.ones(3))
    assert int(state.total_notfinite) == 1
    if size > 1:
        for handler in (True, False):
            known = library.has_handler
            library.has_handler = known if handler else lambda: False
            try:
                with fails(jax.errors.JaxRuntimeError, "MismatchError", "different branches"):
                    steps(optax.apply_if_finite(rc.distributed(optax.sgd(1.0)), 5))
            finally:
                library.has_handler = known
    close(jax.jit(lambda x: rc.allreduce(x))(jnp.ones(2)), np.ones(2))
    for optimizer in (
        rc.distributed(optax.MultiSteps(optax.sgd(1.0), 2)),
        optax.MultiSteps(rc.distributed(optax.sgd(1.0)), 2),
    ):
        state, update = optimizer.init(weights), jax.jit(optimizer.update)
        for step in (1.0, 3.0):
            updates, state = update({"w": jnp.full(3, step * rank)}, state, weights)
        close(updates["w"], np.full(3, -(size - 1.0)))
        assert optimizer.has_updated(state)


def case_parameters_that_are_no_numbers():
    rank, size = rc.rank(), rc.size()
    key = jax.random.key(7)
    given = {"key": key, "name": "adam", "w": jnp.full(2, rank), "step": rank, "none": None, "texts": np.array(["a"])}
    sent = rc.broadcast_parameters(given, size - 1)
    assert sent["key"] is key and sent["name"] == "adam" and sent["none"] is None and sent["texts"] is given["texts"]
    close(sent["w"], [size - 1] * 2)
    assert int(sent["step"]) == size - 1
    for compression in (rc.Compression.none, rc.Compression.fp16, rc.Compression.bf16):
        close(rc.allreduce(jnp.ones(3), compression=compression), np.ones(3))
