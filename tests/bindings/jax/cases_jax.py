"""Cases of ringcomm.jax for framework_cases.py: eagerly, under jit, and in XLA's loops."""

import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from framework_cases import (
    assert_it_is_saved_and_goes_on,
    assert_left_out_comes_later,
    assert_memory_stays,
    checking,
)

import ringcomm
import ringcomm.jax as rc
from ringcomm._src.jax import library

jax.config.update("jax_enable_x64", True)
DTYPES = [
    *("float16", ml_dtypes.bfloat16, "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
]


def dtypes():
    """Returns the dtypes to test: fewer on many ranks, which build a graph for each dtype."""
    return DTYPES if rc.size() <= 3 else DTYPES[1::5]


def values(dtype, shape, rank):
    return jnp.asarray(((np.arange(np.prod(shape, dtype=int)).reshape(shape) + rank) % 3).astype(dtype))


def both(function, *inputs):
    yield function(*inputs)
    yield jax.jit(function)(*inputs)


def equal(result, expected):
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape and result.dtype == expected.dtype, (result, expected)
    np.testing.assert_array_equal(result, expected)


def case_the_handler_is_there():
    assert library.has_handler()


def case_collectives():
    rank, size = rc.rank(), rc.size()
    for dtype in dtypes():
        shape = (2 * size, 3)
        everybody = [values(dtype, shape, one) for one in range(size)]
        total = np.sum(np.stack(everybody).astype(np.complex128), 0)
        total = (total if np.dtype(dtype).kind == "c" else total.real).astype(dtype)
        for result in both(lambda x: rc.allreduce(x, op=rc.Sum), everybody[rank]):
            equal(result, total)
        for result in both(lambda x: rc.reducescatter(x, op=rc.Sum), everybody[rank]):
            equal(result, total[2 * rank : 2 * rank + 2])
        for result in both(lambda x: rc.allgather(x), everybody[rank]):
            equal(result, np.concatenate(everybody))
        for result in both(lambda x: rc.broadcast(x, size - 1), everybody[rank]):
            equal(result, everybody[-1])
        for result in both(lambda x: rc.alltoall(x), everybody[rank]):
            equal(result, np.concatenate([one[2 * rank : 2 * rank + 2] for one in everybody]))


def case_uneven_rows():
    rank, size = rc.rank(), rc.size()
    rows = [jnp.full((one, 2), one) for one in range(size)]
    equal(rc.allgather(rows[rank]), np.concatenate(rows))
    for result in both(lambda x: rc.reducescatter(x, op=rc.Sum), jnp.ones(2 * size + 1)):
        equal(result, np.full(3 if rank == 0 else 2, float(size)))


def case_inputs_stay():
    rank = rc.rank()
    x = jnp.full(1000, float(rank))
    function = jax.jit(lambda x: (rc.allreduce(x, op=rc.Sum), x + 1))
    for _ in range(3):
        function(x)
        equal(x, np.full(1000, float(rank)))


def case_gradients():
    rank, size = rc.rank(), rc.size()
    x = jnp.arange(2.0 * size).reshape(size, 2) + rank
    mean = 2 * (x - rank) + (size - 1)
    for name, function, expected in (
        ("allreduce", lambda x: (rc.allreduce(x) ** 2).sum(), mean),
        ("grouped_allreduce", lambda x: (rc.grouped_allreduce([x, x + 1])[0] ** 2).sum(), mean),
        ("allgather", lambda x: (rc.allgather(x) ** 2).sum(), 2 * x),
        ("broadcast", lambda x: (rc.broadcast(x, 0) ** 2).sum(), 2 * x if rank == 0 else 0 * x),
        ("alltoall", lambda x: (rc.alltoall(x) ** 2).sum(), 2 * x),
        ("reducescatter", lambda x: 3 * rc.reducescatter(x, op=rc.Sum).sum(), 0 * x + 3 * size),
    ):
        for gradient in both(jax.grad(function), x):
            np.testing.assert_allclose(gradient, expected, err_msg=name)


def case_many_in_one_program():
    """Many operations in one program run in the program's order on every rank."""
    size = rc.size()

    @jax.jit
    def program(x):
        results = [rc.allreduce(x + i, op=rc.Sum, name=f"many.{i}") for i in range(20)]
        looped = jax.lax.fori_loop(0, 5, lambda _, y: rc.allreduce(y), x)
        branch = jax.lax.cond(x[0] > 0, lambda y: rc.allreduce(y), lambda y: y, x)
        return results, looped, branch

    for _ in range(3):
        results, looped, branch = program(jnp.ones(3))
        for i, result in enumerate(results):
            equal(result, np.full(3, (1.0 + i) * size))
        equal(looped, np.ones(3))
        equal(branch, np.ones(3))


def fails(error, *words):
    class Context:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, _):
            assert kind is not None and issubclass(kind, error), (kind, value)
            assert all(word in str(value) for word in words), value
            return True

    return Context()


def case_errors():
    rank, size = rc.rank(), rc.size()
    if size > 1:
        bad = jnp.ones(2 + (rank == size - 1))
        with fails(ringcomm.MismatchError, "shape", f"rank {size - 1}"):
            rc.allreduce(bad, name="wrong")
        with fails(jax.errors.JaxRuntimeError, "MismatchError", "wrong", "shape", f"rank {size - 1}"):
            jax.jit(lambda x: rc.allreduce(x, name="wrong"))(bad)
        with fails(jax.errors.JaxRuntimeError, "MismatchError", "shape"):
            jax.block_until_ready(jax.jit(lambda x: rc.allgather(x))(jnp.ones(1 + (rank == size - 1))))
    equal(jax.jit(lambda x: rc.allreduce(x, name="wrong"))(jnp.ones(2)), np.ones(2))


def case_other_rows_than_were_traced():
    """Other ranks' rows differ from the traced ones, even if their sum does not (rank 0)."""
    rank, size = rc.rank(), rc.size()
    rows = [2, 1, 3, 2, 2][:size]
    for name, collective, count in (
        ("gathered", rc.allgather, rows),
        ("spread", rc.alltoall, [n * size for n in rows]),
    ):
        if size == 1:
            continue
        for handler in (True, False):
            known = library.has_handler
            library.has_handler = known if handler else lambda: False
            try:
                with fails(jax.errors.JaxRuntimeError, "MismatchError", name, "rank 1", f"({count[1]},"):
                    jax.block_until_ready(jax.jit(partial(collective, name=name))(jnp.ones((count[rank], 3))))
            finally:
                library.has_handler = known


def case_python_runs_while_a_graph_waits():
    """Rank 0 enters the graph when threads of other ranks have run while main threads wait."""
    by_thread = partial(ringcomm.allreduce, np.ones(1), name="by a thread")
    function = jax.jit(lambda x: rc.allreduce(x, name="meanwhile"))
    if rc.rank() == 0:
        by_thread()
        function(jnp.ones(3))
        return

    def later():
        time.sleep(0.2)
        by_thread()

    thread = threading.Thread(target=later)
    thread.start()
    jax.block_until_ready(function(jnp.ones(3)))
    thread.join()


def case_pytrees_and_optax():
    import optax

    rank, size = rc.rank(), rc.size()
    given = {"a": jnp.full((2, 2), float(rank)), "b": [jnp.int32(rank), jnp.full(3, rank > 0)]}
    sent = rc.broadcast_parameters(given, size - 1)
    equal(sent["a"], np.full((2, 2), size - 1.0))
    equal(sent["b"][1], np.full(3, size > 1))
    assert rc.broadcast_object("x" * rank, size - 1) == "x" * (size - 1)
    random = np.random.default_rng(0)
    whole, targets = random.normal(size=(60, 4)), random.normal(size=(60, 2))

    def train(share):
        if share and 60 % size:
            return None
        optimizer = optax.adam(0.05)
        if share:
            optimizer = rc.distributed(optimizer)
        weights = {"w": jnp.zeros((4, 2)), "b": jnp.zeros(2)}
        state = optimizer.init(weights)

        @jax.jit
        def step(weights, state, x, y):
            loss = lambda weights: ((x @ weights["w"] + weights["b"] - y) ** 2).mean()  # noqa: E731
            updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
            return optax.apply_updates(weights, updates), state

        part = slice(rank, None, size) if share else slice(None)
        for _ in range(6):
            weights, state = step(weights, state, whole[part], targets[part])
        return weights

    together, alone = train(True), train(False)
    if together is not None:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), together, alone)


def case_without_the_handler():
    size = rc.size()
    known = library.has_handler
    library.has_handler = lambda: False
    try:
        equal(jax.jit(lambda x: rc.grouped_allreduce([x, x], op=rc.Sum)[1])(jnp.ones(3)), np.full(3, float(size)))
    finally:
        library.has_handler = known


def case_memory_stays():
    function, x = jax.jit(lambda x: rc.grouped_allreduce([x] * 5)), jnp.ones(1000)

    def work():
        for _ in range(400):
            jax.block_until_ready(function(x))
            rc.allgather(x, name="memory")

    assert_memory_stays(work)


def case_what_is_left_out_of_gradients_comes_later():
    for wire in (rc.Compression.onebit, rc.Compression.topk(0.1)):
        wire = wire(everywhere=True, warmup_steps=0)

        def reduced(array, name, wire=wire):
            tree = {"w": jnp.asarray(array), "b": jnp.asarray(array[0])}
            return rc.allreduce_gradients(tree, op=rc.Sum, name=name, compression=wire)["w"]

        for how, call in (("at once", reduced), ("jit", jax.jit(reduced, static_argnums=1))):
            name = f"gradients {how} {wire.name}"
            assert_left_out_comes_later(lambda one, call=call, name=name: call(one, name), rc.rank(), rc.size())


def case_what_is_left_out_is_saved():
    wire = rc.Compression.onebit(everywhere=True, warmup_steps=0)

    def make():
        def reduced(array):
            return rc.allreduce_gradients({"w": array}, name="saved", compression=wire)["w"]

        program = jax.jit(reduced)
        return lambda array: jax.block_until_ready(program(jnp.asarray(array)))

    assert_it_is_saved_and_goes_on(rc, make, "saved.0", True)


def case_compression_by_name():
    optax_like = type("Transformation", (), {"_replace": lambda self, **changes: changes})()
    rc.allreduce(jnp.ones(3), compression="fp16", name="by name")
    for compression in ("none", "fp16", "int8", "onebit", "auto", None):
        rc.distributed(optax_like, compression=compression)
    for compression, nearest in (("int7", "int"), ("bf61", "bf16"), (7, ""), ({"*": "int8"}, "")):
        with pytest.raises(ValueError, match=f"is unknown. Known: {nearest}"):
            rc.distributed(optax_like, compression=compression)


def case_replicas_are_compared():
    import optax

    if rc.size() == 1:
        return
    keys = {"a": jnp.ones(3), "b": jnp.ones((2, 2), jnp.bfloat16)}
    for compiled, alone in ((False, False), (True, False), (True, True)):
        optimizer = rc.distributed(optax.sgd(0.1), name=f"checked{compiled}{alone}")

        def step(weights, state, optimizer=optimizer):
            gradients = jax.grad(lambda w: (w["a"] ** 2).sum() + w["b"].sum())(weights)
            updates, state = optimizer.update(gradients, state, weights)
            return optax.apply_updates(weights, updates), state

        step = jax.jit(step, donate_argnums=0) if compiled else step
        weights = jax.tree.map(lambda one, alone=alone: one * (1 + rc.rank() * alone), keys)
        state = optimizer.init(weights)
        with checking("2") as found:
            for number in range(5):
                if number == 3 and not alone:  # between the checks of step 2 and step 4
                    weights["b"] = weights["b"] + (rc.rank() == 1)
                weights, state = step(weights, state)
            equal, different, (text,) = found()
        assert (equal, different) == ((0, 2) if alone else (1, 1))
        wanted = "1: \"['a']\" on rank" if alone else "3: \"['b']\" on rank 1 differs from rank 0's by up to 1"
        assert f"after step {wanted}" in text, text
        assert ("not been equal at any check" if alone else "this began in step 2") in text, text
        with checking("error:1"):
            raised = jax.errors.JaxRuntimeError if compiled else ringcomm.MismatchError
            with pytest.raises(raised, match="replicas of the optimizer"):
                jax.block_until_ready(step(weights, state))


def case_check_replicas():
    weights = {"w": jnp.ones(3), "key": jax.random.key(rc.rank()), "b": [jnp.zeros((0, 2)), jnp.arange(4)]}
    with checking("warn") as found:
        rc.check_replicas(weights)
        weights["b"][1] = weights["b"][1] + rc.rank()
        rc.check_replicas(weights, name="second")
        equal, different, texts = found()
    if rc.size() == 1:
        assert (equal, different, texts) == (0, 0, [])
    else:
        assert (equal, different) == (1, 1) and "replicas of 'second' differ after step 1: \"['b'][1]\"" in texts[0]
    with pytest.raises(ValueError, match=r"outside of jax\.jit"):
        jax.jit(rc.check_replicas)(weights["w"])
