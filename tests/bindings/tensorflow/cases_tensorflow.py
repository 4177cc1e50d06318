"""Cases of ringcomm.tensorflow for framework_cases.py: eager, functions, TensorFlow 1."""

import itertools
import json
import pickle
import threading
import time
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from framework_cases import (
    assert_it_is_saved_and_goes_on,
    assert_left_out_comes_later,
    assert_memory_stays,
    checking,
)

import ringcomm
import ringcomm.tensorflow as hvd
from ringcomm._src.tensorflow import library

DTYPES = [
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128),
]


def dtypes():
    """Returns the dtypes to test: fewer on many ranks, which build a graph for each dtype."""
    return DTYPES if hvd.size() <= 3 else DTYPES[1::5]


def values(dtype, shape, rank, first=0):
    """Returns small integers, so that sums are exact."""
    numbers = (np.arange(first, first + np.prod(shape, dtype=int)).reshape(shape) + rank) % 3
    return tf.cast(tf.constant(numbers), dtype)


def everybody(dtype, shape):
    return [values(dtype, shape, rank).numpy() for rank in range(hvd.size())]


def both(function, *inputs):
    """Yields eager results, and results of a function's graph with unknown shapes."""
    yield function(*inputs)
    unknown = [tf.TensorSpec(None, one.dtype) for one in inputs]
    yield tf.function(function, input_signature=unknown)(*inputs)
    yield tf.function(function)(*inputs)


def equal(result, expected):
    result = np.asarray(result)
    assert result.shape == expected.shape and result.dtype == expected.dtype, (result, expected)
    np.testing.assert_array_equal(result, expected)


def case_the_op_is_loaded():
    assert library.op() is not None


def case_allreduce():
    for dtype in dtypes():
        mine, given = values(dtype, (3, 2), hvd.rank()), everybody(dtype, (3, 2))
        total = given[0]
        for one in given[1:]:
            total = total + one
        for result in both(lambda x: hvd.allreduce(x, op=hvd.Sum), mine):
            equal(result, total.astype(given[0].dtype))
        if dtype not in (tf.complex64, tf.complex128):
            for result in both(lambda x: hvd.allreduce(x, op=hvd.Max), mine):
                equal(result, np.max(given, 0) if dtype != tf.bool else np.any(given, 0))


def case_moves():
    rank, size = hvd.rank(), hvd.size()
    for dtype in dtypes():
        rows = [values(dtype, (one + 1, 2), one) for one in range(size)]
        for result in both(lambda x: hvd.allgather(x), rows[rank]):
            equal(result, np.concatenate(rows))
        mine = values(dtype, (2, 2), rank)
        for result in both(lambda x: hvd.broadcast(x, size - 1), mine):
            equal(result, values(dtype, (2, 2), size - 1).numpy())
        square = values(dtype, (2 * size, 3), rank)
        expected = np.concatenate([one[2 * rank : 2 * rank + 2] for one in everybody(dtype, (2 * size, 3))])
        for result in both(lambda x: hvd.alltoall(x), square):
            equal(result, expected)


def case_alltoall_with_splits():
    rank, size = hvd.rank(), hvd.size()
    splits = tf.constant([rank + to for to in range(size)], tf.int64)
    rows = tf.fill([int(tf.reduce_sum(splits)) + 1, 2], float(rank))  # the last row is not sent
    expected = np.concatenate([np.full((one + rank, 2), one, np.float32) for one in range(size)])
    for received, counts in both(lambda x, s: hvd.alltoall(x, splits=s), rows, splits):
        equal(received, expected)
        equal(counts, np.array([one + rank for one in range(size)], np.int32))


def case_reducescatter():
    rank, size = hvd.rank(), hvd.size()
    for dtype, rows in itertools.product((tf.float32, tf.bfloat16, tf.int32, tf.complex64), (size, 2 * size + 1)):
        whole = sum(one.astype(np.complex64) for one in everybody(dtype, (rows, 2)))
        mine = np.array_split(whole, size)[rank]
        mine = (mine if dtype.is_complex else mine.real).astype(dtype.as_numpy_dtype)
        for result in both(lambda x: hvd.reducescatter(x, op=hvd.Sum), values(dtype, (rows, 2), rank)):
            equal(result, mine)


def case_groups():
    rank, size = hvd.rank(), hvd.size()
    given = [tf.fill([n], float(rank)) for n in (0, 1, 5, 1000)]
    for results in both(lambda *x: hvd.grouped_allreduce(x), *given):
        for result, one in zip(results, given, strict=True):
            equal(result, np.full(one.shape, (size - 1) / 2, np.float32))
    for results in both(lambda *x: hvd.grouped_allgather(x), *given):
        for result, one in zip(results, given, strict=True):
            equal(result, np.repeat(np.arange(size, dtype=np.float32), one.shape[0]))
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]))
    for (result,) in both(lambda: [one.values for one in hvd.grouped_allreduce([slices])]):
        equal(result, np.full((size, 2), 1 / size, np.float32))
    mixed = [tf.ones(3), tf.ones(2, tf.int32), tf.ones((), tf.float64)]
    for results in both(lambda *x: hvd.grouped_allreduce(x, op=hvd.Sum), *mixed):
        for result, one in zip(results, mixed, strict=True):
            equal(result, one.numpy() * size)
    for results in both(lambda *x: hvd.grouped_reducescatter(x, op=hvd.Sum), tf.ones([size, 2]), tf.ones([2 * size])):
        equal(results[0], np.full((1, 2), size, np.float32))
        equal(results[1], np.full(2, size, np.float32))


def case_barriers():
    function = tf.function(lambda: hvd.barrier())
    for _ in range(3):
        function()
        hvd.barrier()


def case_factors_and_compression():
    size = hvd.size()
    for result in both(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2, postscale_factor=3), tf.ones(4)):
        equal(result, np.full(4, 6 * size, np.float32))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for result in both(lambda x, c=compression: hvd.allreduce(x, compression=c), tf.fill([4], 1.5)):
            equal(result, np.full(4, 1.5, np.float32))

    class Halves(hvd.Compression.fp16):
        @staticmethod
        def compress(tensor):
            return tensor / 2, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * 2

    equal(hvd.allreduce(tf.ones(3), compression=Halves), np.ones(3, np.float32))


def case_inputs_stay():
    rank = hvd.rank()
    variable = tf.Variable(tf.fill([1000], float(rank)))
    kept = tf.fill([1000], float(rank))
    function = tf.function(lambda: (hvd.allreduce(variable, op=hvd.Sum), hvd.allreduce(kept, op=hvd.Sum)))
    for _ in range(3):
        function()
        equal(variable, np.full(1000, rank, np.float32))
        equal(kept, np.full(1000, rank, np.float32))


def case_gradients():
    rank, size = hvd.rank(), hvd.size()
    x = tf.Variable(tf.reshape(tf.range(2.0 * size), [size, 2]) + float(rank))
    mine = x.numpy()
    mean = 2 * (mine - rank) + (size - 1)  # twice the mean of the ranks' values
    splits = [1] * size

    expected = {
        "allreduce": (lambda: hvd.allreduce(x) ** 2, mean),
        "grouped_allreduce": (lambda: hvd.grouped_allreduce([x])[0] ** 2, mean),
        "allgather": (lambda: hvd.allgather(x) ** 2, 2 * mine),
        "broadcast": (lambda: hvd.broadcast(x, 0) ** 2, 2 * mine if rank == 0 else 0 * mine),
        "alltoall": (lambda: hvd.alltoall(x) ** 2, 2 * mine),
        "alltoall with splits": (lambda: hvd.alltoall(x, splits)[0] ** 2, 2 * mine),
        "reducescatter": (lambda: hvd.reducescatter(x, op=hvd.Sum) * 3, 0 * mine + 3 * size),
    }
    for name, (function, gradient) in expected.items():

        def step(function=function):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(function())
            return tape.gradient(loss, x)

        for one in (step(), tf.function(step)()):
            np.testing.assert_allclose(one, gradient, err_msg=name)


def case_gradients_of_extremes_and_products():
    rank, size = hvd.rank(), hvd.size()
    # The columns: an extreme on one rank; equal values on all ranks; equal values on the first two.
    x = tf.Variable([float(rank), 5.0, 3.0 if rank < 2 else 2.0 - rank])
    given = tf.constant([[float(10 * r + column) for column in range(3)] for r in range(size)])
    sums = given.numpy().sum(0)

    def gradient(op, x, weights=given[rank]):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x, op=op) * weights)
        return tape.gradient(loss, x)

    expected = sums * np.array([rank == size - 1, 1 / size, (rank < 2) / min(size, 2)], np.float32)
    for result in both(lambda x: gradient(hvd.Max, x), tf.convert_to_tensor(x)):
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient(hvd.Min, -x), expected, rtol=1e-6)
    # The columns: no zero, a zero on the last rank, zeros on all ranks.
    rows = np.array([[r + 1.0, r + 1.0 - size, 0.0] for r in range(size)], np.float32)
    others = np.delete(rows, rank, 0).prod(0)
    np.testing.assert_allclose(gradient(hvd.Product, tf.constant(rows[rank])), sums * others, rtol=1e-6)
    grouped = [tf.constant(rows[rank]), tf.constant([1.0 + rank])]
    with tf.GradientTape() as tape:
        tape.watch(grouped)
        loss = tf.reduce_sum(tf.concat(hvd.grouped_allreduce(grouped, op=hvd.Product), 0))
    results = tape.gradient(loss, grouped)
    np.testing.assert_allclose(results[0], size * others, rtol=1e-6)
    y = tf.Variable(tf.ones(size))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(hvd.reducescatter(y, op=hvd.Max))
    with raised(NotImplementedError, "reducescatter with Max"):
        tape.gradient(loss, y)


def case_gradients_of_gradients():
    rank, size = hvd.rank(), hvd.size()
    x = tf.Variable(tf.ones([size, 2]) * (rank + 1.0))
    splits = [1] * size
    # The function is the sum of cubes. If gradients are averaged, the gradients of gradients are
    # averaged too.
    mean = (size + 1) / 2
    expected = {
        "sum": (lambda: hvd.allreduce(x, op=hvd.Sum), 6.0 * size**3 * mean),
        "average": (lambda: hvd.allreduce(x), 6.0 * mean),
        "allgather": (lambda: hvd.allgather(x), 6.0 * (rank + 1) / size),
        "broadcast": (lambda: hvd.broadcast(x, 0), 6.0 / size if rank == 0 else 0.0),
        "alltoall": (lambda: hvd.alltoall(x), 6.0 * (rank + 1)),
        "alltoall with splits": (lambda: hvd.alltoall(x, splits)[0], 6.0 * (rank + 1)),
        "reducescatter": (lambda: hvd.reducescatter(x, op=hvd.Sum), 6.0 * size**3 * mean),
        "max": (lambda: hvd.allreduce(x, op=hvd.Max), 6.0 * size**2 if rank == size - 1 else 0.0),
    }
    for name, (function, value) in expected.items():

        def step(function=function):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = tf.reduce_sum(function() ** 3)
                (first,) = inner.gradient(loss, [x])
            return outer.gradient(first, x)

        traced = [tf.function(step)()] if name in ("sum", "broadcast", "alltoall with splits") else []
        for one in (step(), *traced) if size > 1 else ():
            np.testing.assert_allclose(one, np.full((size, 2), value), rtol=1e-5, err_msg=name)
    for function, _ in expected.values():
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)), raised(NotImplementedError, "forward-mode"):
            function()


def case_a_gradient_penalty():
    rank, size = hvd.rank(), hvd.size()
    w = tf.Variable(2.0)

    def step():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = w**3 * (rank + 1.0)
            (first,) = hvd.DistributedGradientTape(inner).gradient(loss, [w])  # 3 w^2 (size + 1) / 2
            penalty = first**2
        return hvd.DistributedGradientTape(outer).gradient(penalty, [w])

    expected = 2 * (6 * (size + 1)) * (12 * (size + 1) / 2)
    for one in (step(), tf.function(step)()):
        np.testing.assert_allclose(one[0], expected, rtol=1e-6)

    @tf.function
    def reduced():
        with tf.GradientTape() as inner:
            loss = w**3
        return hvd.DistributedGradientTape(inner).gradient(loss, [w])[0]

    if size > 1:
        reduced()
        with tf.GradientTape(), raised(NotImplementedError, "into the same function"):
            reduced()


def case_gradient_of_uneven_alltoall():
    rank, size = hvd.rank(), hvd.size()
    x = tf.Variable(tf.reshape(tf.range(2.0 * size * (rank + 1)), [-1, 2]) + rank)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(hvd.alltoall(x) ** 2)
        return tape.gradient(loss, x)

    for one in (step(), tf.function(step)()):
        np.testing.assert_allclose(one, 2 * x.numpy())


def case_order_of_ranks_does_not_matter():
    """Graphs of TensorFlow 1 may run their ops in any order."""
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default():
        ops = [hvd.allreduce(tf.fill([100], float(rank + i)), op=hvd.Sum, name=f"v1.{i}") for i in range(12)]
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
        with tf.compat.v1.Session(config=config) as session:
            for _ in range(3):
                for i, result in enumerate(session.run(ops if rank % 2 else ops[::-1])[:: 1 if rank % 2 else -1]):
                    equal(result, np.full(100, size * (size - 1) / 2 + i * size, np.float32))


def case_loops_and_branches():
    size = hvd.size()

    @tf.function
    def loop(x, times):
        for i in tf.range(times):
            x = hvd.allreduce(x, op=hvd.Sum) / size if i % 2 == 0 else hvd.allreduce(x * 2)
        return x

    equal(loop(tf.ones(3), 4), np.full(3, 4, np.float32))


def case_nameless_operations_pair_by_their_order():
    """TensorFlow numbers tensors, scopes and branches; here ranks create different numbers of them."""
    rank, size = hvd.rank(), hvd.size()
    inner = tf.function(lambda x: hvd.allreduce(x * x, op=hvd.Sum))

    @tf.function
    def function(x, n):
        for _ in range(rank):
            x = tf.identity(x + 1.0) - 1.0
            x = tf.cond(n > 5, lambda x=x: x, lambda x=x: x + 0.0)
        with tf.name_scope("scope"):
            first = hvd.allreduce(tf.identity(x), op=hvd.Sum)
        second = tf.cond(n > 0, lambda: hvd.allreduce(x + 1.0, op=hvd.Sum), lambda: hvd.allreduce(x))
        third = tf.cond(n > 0, lambda: hvd.allreduce(x + 2.0, op=hvd.Sum), lambda: x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(inner(x))
        return first, second, third, tape.gradient(loss, x)

    given = tf.fill([3], float(rank))
    for _ in range(rank):  # a different number of traces on each rank
        inner.get_concrete_function(tf.TensorSpec([2 + rank]))
    total = size * (size - 1) / 2
    for _ in range(2):
        results = function(given, tf.constant(1))
        for result, expected in zip(results, (total, total + size, total + 2 * size, 2 * rank * size), strict=True):
            equal(result, np.full(3, expected, np.float32))


def case_gradients_of_branches_and_loops_pair_by_their_place():
    """TensorFlow numbers the graphs of these gradients; ranks create different numbers."""
    rank, size = hvd.rank(), hvd.size()
    for _ in range(rank):
        tf.function(lambda x: tf.cond(x > 0, lambda: x, lambda: -x))(tf.constant(1.0))

    def squares(x):
        return hvd.allreduce(x * x, op=hvd.Sum)

    kinds = [
        lambda x: tf.cond(x[0] >= 0, lambda: squares(x), lambda: x),
        lambda x: tf.cond(x[0] >= 0, lambda: tf.cond(x[1] >= 0, lambda: squares(x), lambda: x), lambda: x),
        lambda x: tf.switch_case(tf.cast(x[0] * 0, tf.int32), [lambda: squares(x), lambda: x]),
        lambda x: tf.while_loop(lambda i, _: i < 1, lambda i, v: (i + 1, squares(v)), (0, x))[1],
    ]
    for kind in kinds:

        @tf.function
        def slopes(x, kind=kind):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tf.reduce_sum(kind(x))
                first = tape.gradient(loss, x)
            return first, outer.gradient(first, x)

        first, second = slopes(tf.fill([3], float(rank)))
        equal(first, np.full(3, 2 * rank * size, np.float32))
        equal(second, np.full(3, 2 * size, np.float32))


def case_gradients_of_a_function_that_is_called_twice_do_not_cross():
    """Rank 0 delays the input and the gradient of the first call, rank 1 those of the second call."""
    rank, size = hvd.rank(), hvd.size()

    def late(value, on):
        def wait(array):
            time.sleep(0.02 if rank == on else 0)
            return array

        @tf.custom_gradient
        def run(value):
            return same(value), same

        def same(given):
            return tf.ensure_shape(tf.numpy_function(wait, [given], tf.float32, stateful=False), given.shape)

        return run(value)

    variable = tf.Variable(1.0)

    @tf.function
    def total(x, weights):
        return tf.reduce_sum(weights * hvd.allreduce(x * x, op=hvd.Sum))

    @tf.function
    def total_with_a_variable(x, weights):
        return tf.reduce_sum(weights * hvd.allreduce(variable * x * x, op=hvd.Sum))

    def both(x, y, total=total):
        return late(total(late(x, 0), tf.ones(3)), 0) + late(total(late(y, 1), tf.fill([3], 100.0)), 1)

    def slopes(x, y, function=both, **how):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            loss = function(x, y, **how)
        return tape.gradient(loss, [x, y])

    def outer_slopes(x, y, **how):
        with tf.GradientTape(persistent=True) as outer:
            outer.watch([x, y])
            first = slopes(x, y, **how)
        return first

    compiled = tf.function(both)
    kinds = [
        slopes,
        partial(slopes, function=compiled),
        partial(outer_slopes, function=compiled),
        tf.function(slopes),
        tf.function(outer_slopes),
        tf.function(partial(slopes, function=compiled)),
    ]
    kinds += [partial(kind, total=total_with_a_variable) for kind in kinds]
    for kind in kinds:
        for _ in range(3):
            first, second = kind(tf.ones(3), tf.fill([3], 10.0))
            equal(first, np.full(3, 2 * size, np.float32))
            equal(second, np.full(3, 2000 * size, np.float32))


def case_other_collectives_at_a_place_of_a_function():
    if hvd.size() == 1:
        return

    @tf.function
    def function(x):
        return hvd.allreduce(x) if hvd.rank() else hvd.broadcast(x, 0)

    with raised(tf.errors.FailedPreconditionError, "MismatchError", "broadcast", "allreduce", "rank 0"):
        function(tf.ones(3))
    again = tf.function(lambda x: hvd.allreduce(x))
    equal(again(tf.ones(3)), np.ones(3, np.float32))


def raised(error, *words):
    class Context:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, _):
            self.value = value
            assert kind is not None and issubclass(kind, error), (kind, value)
            assert all(word in str(value) for word in words), value
            return True

    return Context()


def case_python_runs_while_a_graph_waits():
    """Rank 0 enters the graph when threads of other ranks have run while main threads wait."""
    by_thread = partial(ringcomm.allreduce, np.ones(1), name="by a thread")
    function = tf.function(lambda x: hvd.allreduce(x, name="meanwhile"))
    if hvd.rank() == 0:
        by_thread()
        function(tf.ones(3))
        return

    def later():
        time.sleep(0.2)
        by_thread()

    thread = threading.Thread(target=later)
    thread.start()
    function(tf.ones(3))
    thread.join()


def case_mismatches():
    rank, size = hvd.rank(), hvd.size()
    if size == 1:
        return
    bad = tf.ones(2 + (rank == size - 1))
    words = "wrong", "ranks disagree on shape", f"rank {size - 1}"
    with raised(hvd.HorovodInternalError, *words):
        hvd.allreduce(bad, name="wrong")
    function = tf.function(lambda x: hvd.allreduce(x, name="wrong"))
    with raised(tf.errors.FailedPreconditionError, "MismatchError", *words):
        function(bad)
    with raised(tf.errors.FailedPreconditionError, *words) as caught:
        hvd.allreduce(bad, name="wrong")
    assert isinstance(caught.value, ringcomm.MismatchError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is ringcomm.MismatchError and str(again) == str(caught.value)
    for kind in (ValueError, tf.errors.InvalidArgumentError):
        with raised(kind, "first dimension"):
            hvd.alltoall(tf.ones(size + 1))
    with raised(ringcomm.MismatchError, "dtype"):
        hvd.allreduce(tf.ones(2, tf.float32 if rank else tf.float64), name="wrong")
    with raised(ringcomm.MismatchError, "op"):
        hvd.allreduce(tf.ones(2), op=hvd.Max if rank else hvd.Min, name="wrong")
    with raised(ringcomm.MismatchError):
        hvd.allgather(tf.ones((2, 2 + rank)), name="wrong")
    equal(hvd.allreduce(tf.ones(2), name="wrong"), np.ones(2, np.float32))
    equal(function(tf.ones(2)), np.ones(2, np.float32))


def case_bad_arguments():
    size = hvd.size()
    for grouped in (False, True):
        with raised((TypeError, ValueError), "string"):
            x = tf.constant(["a"])
            hvd.grouped_allreduce([x]) if grouped else hvd.allreduce(x)
    with raised(ValueError, "first dimension"):
        hvd.reducescatter(tf.ones(()))
    with raised(ValueError, "splits"):
        hvd.alltoall(tf.ones(3), splits=[5] * size)
    with raised(ValueError, "root"):
        hvd.broadcast(tf.ones(3), size)
    with raised(ValueError, "both"):
        hvd.allreduce(tf.ones(3), op=hvd.Sum, average=True)
    with raised(ValueError, "Max"):
        hvd.allreduce(tf.ones(3, tf.complex64), op=hvd.Max)
    with raised(NotImplementedError, "IndexedSlices"):
        hvd.allreduce(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), op=hvd.Max)
    whole = tf.IndexedSlices(tf.constant([[3, 4]]), tf.constant([0]))
    with raised(NotImplementedError, "int32", "cast"):
        hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5)
    equal(hvd.allreduce(whole, op=hvd.Sum).values, np.full((size, 2), [3, 4], np.int32))
    equal(hvd.allreduce(whole).values, np.full((size, 2), [3, 4]) / size)


def case_jit_compile():
    """XLA cannot contain the op, so tracing raises one error on every rank, at any nesting depth."""
    compiled = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
    plain = tf.function(lambda x: hvd.allreduce(x))
    for function in (compiled, tf.function(compiled), tf.function(lambda x: plain(x), jit_compile=True)):
        with raised(ValueError, "jit_compile=False"):
            function(tf.ones(3))
    equal(plain(tf.ones(3)), np.ones(3, np.float32))


def case_process_sets():
    rank, size = hvd.rank(), hvd.size()
    if size < 2:
        return
    some = hvd.add_process_set(list(range(1, size)))
    if some.included():
        for result in both(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=some), tf.fill([2], float(rank))):
            equal(result, np.full(2, size * (size - 1) / 2, np.float32))
        for result in both(lambda x: hvd.broadcast(x, size - 1, process_set=some), tf.fill([2], float(rank))):
            equal(result, np.full(2, size - 1, np.float32))
        assert hvd.size_op(some.process_set_id).numpy() == size - 1
    else:
        with raised(ValueError, "not in process set"):
            hvd.allreduce(tf.ones(2), process_set=some)
    assert hvd.process_set_included_op(some.process_set_id).numpy() == int(rank > 0)
    hvd.remove_process_set(some)
    with raised(ValueError, "has not been added"):
        hvd.allreduce(tf.ones(2), process_set=some)


def case_questions():
    for result in both(lambda: (hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op())):
        assert [int(one) for one in result] == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
    assert hvd.process_set_included_op(17).numpy() == -2


def case_join():
    """A rank that has joined contributes zeros."""
    rank, size = hvd.rank(), hvd.size()
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="joined"))
    for step in range(rank + 1):
        equal(function(tf.ones(3)), np.full(3, size - step, np.float32))
    assert hvd.join() == size - 1


# ---- training --------------------------------------------------------------------------------------------------------
def train(optimizer, share, in_function, sparse_as_dense=False, **options):
    """Returns the weights after steps on 12 rows; this rank uses its shard, or all rows."""
    import keras

    random = np.random.default_rng(0)
    table = tf.Variable(random.normal(size=(11, 4)), name="table")
    matrix, unused = tf.Variable(random.normal(size=(4, 3)), name="matrix"), tf.Variable([1.0], name="unused")
    if share:
        for one in (table, matrix):
            one.assign_add(tf.cast(tf.ones_like(one) * hvd.rank(), one.dtype))
        hvd.broadcast_variables([table, matrix], root_rank=0)
    optimizer = keras.optimizers.get({"class_name": optimizer, "config": {"learning_rate": 0.05}})
    optimizer.build([table, matrix])

    def step(rows, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.gather(table, rows) @ matrix - targets) ** 2)
        if share:
            tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense, **options)
        of_table, of_matrix, of_unused = tape.gradient(loss, [table, matrix, unused])
        assert of_unused is None and isinstance(of_table, tf.IndexedSlices) != (share and sparse_as_dense)
        optimizer.apply_gradients([(of_table, table), (of_matrix, matrix)])

    if in_function:
        step = tf.function(step)
    for _ in range(6):
        rows, targets = random.integers(0, 11, 60), random.normal(size=(60, 3))
        part = slice(hvd.rank(), None, hvd.size()) if share else slice(None)
        step(tf.constant(rows[part]), tf.constant(targets[part]))
    return np.concatenate([table.numpy().ravel(), matrix.numpy().ravel()])


def case_training():
    if 60 % hvd.size():
        return
    for optimizer in ("SGD", "Adam"):
        alone = train(optimizer, False, True)
        options = [{}] if optimizer == "Adam" else [{}, {"num_groups": 2}, {"gradient_predivide_factor": 2.0}]
        for in_function, more in itertools.product((False, True), options):
            together = train(optimizer, hvd.size() > 1, in_function, **more)
            np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9, err_msg=f"{optimizer} {more}")
    if hvd.size() > 1:
        np.testing.assert_allclose(train("SGD", True, True, True), train("SGD", False, True), rtol=1e-9, atol=1e-9)


def case_local_sources():
    rank, size = hvd.rank(), hvd.size()
    shared, own = tf.Variable(1.0), tf.Variable(1.0)
    for scaled in (True, False):
        tape = hvd.DistributedGradientTape(tf.GradientTape(), scale_local_gradients=scaled)
        tape.register_local_source(own)
        with tape:
            loss = (shared + own) * float(rank)
        gradients = tape.gradient(loss, [shared, own])
        expected = [(size - 1) / 2, rank / size if scaled and size > 1 else rank]
        np.testing.assert_allclose([float(one) for one in gradients], expected, rtol=1e-6)


def case_a_gradient_that_one_rank_lacks():
    rank, size = hvd.rank(), hvd.size()
    there, nowhere = tf.Variable([1.0, 2.0], name="there"), tf.Variable(1.0, name="nowhere")
    partly = tf.Variable(tf.ones([3]), name="partly")

    def step(everywhere):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(there * 2.0)
            if everywhere or rank != size - 1:
                loss += tf.reduce_sum(partly)
        return hvd.DistributedGradientTape(tape).gradient(loss, [there, nowhere, partly])

    results = step(True)
    assert results[1] is None
    np.testing.assert_allclose(results[2], np.ones(3))
    if size > 1:
        words = "partly", f"a gradient that is None) on rank {size - 1}"
        with raised(ringcomm.MismatchError, *words):
            step(False)
        with raised(tf.errors.FailedPreconditionError, *words):
            tf.function(step)(False)


def case_local_sources_with_sparse_gradients():
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 2]))
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(table)
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_allclose(gradient.values, np.full((2, 2), 1 / hvd.size()), rtol=1e-6)


def case_optimizers_of_tensorflow_1():
    rank, size = hvd.rank(), hvd.size()
    for passes, average in ((1, False), (2, False), (2, True)):
        with tf.Graph().as_default():
            x = tf.compat.v1.get_variable("x", initializer=[float(rank), 2.0], dtype=tf.float32)
            loss = tf.reduce_sum(x) * (rank + 1.0)
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(1.0),
                backward_passes_per_step=passes,
                average_aggregated_gradients=average,
            )
            train_op = optimizer.minimize(loss)
            send = hvd.broadcast_global_variables(0)
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(send)
                for step in range(1, 5):
                    session.run(train_op)
                    taken = (step // passes) * (1 if average else passes)
                    mean = (size + 1) / 2
                    np.testing.assert_allclose(session.run(x), np.array([0, 2]) - taken * mean, rtol=1e-6)


def case_objects():
    rank, size = hvd.rank(), hvd.size()
    assert hvd.broadcast_object({"rank": rank}, size - 1) == {"rank": size - 1}
    assert hvd.broadcast_object_fn(0)(rank) == 0
    assert hvd.allgather_object("x" * rank) == ["x" * one for one in range(size)]
    variables = [tf.Variable(tf.fill([3], float(rank))), tf.Variable(rank), tf.Variable(rank > 0)]
    tf.function(lambda: hvd.broadcast_variables(variables, 0))()
    assert [one.numpy().tolist() for one in variables] == [[0.0] * 3, 0, False]


def case_sync_batch_normalization():
    import keras

    rank, size = hvd.rank(), hvd.size()
    random = np.random.default_rng(1)
    whole = random.normal(size=(6 * size, 3, 4)).astype(np.float32)
    mine = whole[6 * rank : 6 * rank + 6]
    reference, layer = keras.layers.BatchNormalization(momentum=0.5), hvd.SyncBatchNormalization(momentum=0.5)
    for batch, one in ((whole, reference), (mine, layer)):
        one.build(batch.shape)
    weights = random.normal(size=whole.shape).astype(np.float32)

    def gradient(one, batch, weight):
        x = tf.Variable(batch)
        with tf.GradientTape() as tape:
            result = one(x, training=True)
            loss = tf.reduce_sum(result * weight)
        return result, tape.gradient(loss, x)

    expected = gradient(reference, whole, weights)
    results = gradient(layer, mine, weights[6 * rank : 6 * rank + 6])
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other[6 * rank : 6 * rank + 6], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(layer.moving_mean, reference.moving_mean, rtol=1e-4, atol=1e-5)


def case_sync_batch_normalization_far_from_zero():
    """A mean of 10,000 with a deviation of 1 leaves the variance three digits of float32's seven."""
    rank, size = hvd.rank(), hvd.size()
    random = np.random.default_rng(1)
    whole = random.normal([0, 1000, 10000], size=(40 * size, 3)).astype(np.float32)
    layer = hvd.SyncBatchNormalization(momentum=0.0, epsilon=1e-9, fused=False)
    result = layer(whole[rank::size], training=True)
    exact = whole.astype(np.float64)
    expected = (exact - exact.mean(0)) / exact.std(0)
    np.testing.assert_allclose(result, expected[rank::size], atol=5e-3)
    np.testing.assert_allclose(layer.moving_variance, exact.var(0), rtol=1e-4)
    with raised(ValueError, "fused=True"):
        hvd.SyncBatchNormalization(fused=True)


def case_sync_batch_normalization_of_a_set():
    rank, size = hvd.rank(), hvd.size()
    if size < 3:
        return
    some = hvd.add_process_set([0, size - 1])
    layer = hvd.SyncBatchNormalization(process_set=some)
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.process_set is some
    copy(tf.fill([2, 1], float(rank)), training=True)  # ranks outside of the set do not take part
    hvd.remove_process_set(some)
    with raised(ValueError, "add_process_set"):
        type(layer).from_config(layer.get_config())
    plain = hvd.SyncBatchNormalization()
    assert type(plain).from_config(plain.get_config()).process_set is hvd.global_process_set


def case_helpers_of_horovod():
    from ringcomm._src.named.build import is_version_greater_equal_than
    from ringcomm._src.tensorflow.util import _cache, _make_subgraph, refs_to_vars, vars_to_refs

    variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
    again = refs_to_vars(vars_to_refs(variables))
    assert again[0] is variables[0] and again[1][0] is variables[1][0]
    calls = []
    remembered = _cache(lambda x: calls.append(x) or x)
    assert remembered(3) == remembered(3) == 3 and calls == [3]
    assert _make_subgraph(lambda x: x + 1)(tf.constant(1)) == 2
    assert is_version_greater_equal_than("2.10.0", "2.9.1")
    assert not is_version_greater_equal_than("2.9.1rc1", "2.9.1")
    for bad in (("2.0", "2.0"), (2, "2.0.0")):
        with raised(ValueError):
            is_version_greater_equal_than(*bad)


def case_without_the_library():
    """Graph operations also run by numpy_function, without the library of ops."""
    size = hvd.size()
    known = library.op
    library.op = lambda: None
    try:
        for results in both(lambda x: hvd.grouped_allreduce([x, x + 1], op=hvd.Sum), tf.ones(3, tf.bfloat16)):
            np.testing.assert_array_equal(np.asarray(results[1], np.float32), np.full(3, 2 * size))
        for result in both(lambda x: hvd.allgather(x), tf.ones((1, 2))):
            equal(result, np.ones((size, 2), np.float32))
    finally:
        library.op = known


def case_a_later_session():
    """Functions traced before a shutdown run in the next session; in between they raise."""
    size = hvd.size()
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    equal(function(tf.ones(3)), np.full(3, size, np.float32))
    hvd.shutdown()
    with raised(tf.errors.FailedPreconditionError, "init()"):
        function(tf.ones(3))
    with raised(ringcomm.NotInitializedError):
        hvd.allreduce(tf.ones(3))
    hvd.init()
    equal(function(tf.ones(3)), np.full(3, size, np.float32))
    equal(hvd.allreduce(tf.ones(3), op=hvd.Sum), np.full(3, size, np.float32))


def case_memory_stays():
    given = [tf.ones(2000) for _ in range(10)]

    @tf.function
    def steps(count):
        x = given
        for _ in tf.range(count):
            x = hvd.grouped_allreduce(x)
        return tf.add_n(x), hvd.allgather(x[0])

    def work():
        steps(300 // hvd.size())
        for _ in range(200 // hvd.size()):
            hvd.allreduce(given[0], name="memory")  # graph operations without names are cached too, up to 4096 of them
            hvd.allgather(given[0], name="memory")

    assert_memory_stays(work)


def case_what_is_left_out_of_gradients_comes_later():
    given = {"everywhere": True, "warmup_steps": 0}
    for wire in (hvd.Compression.onebit, hvd.Compression.topk(0.1)):
        for wrap in (lambda function: function, tf.function):
            variable = tf.Variable(tf.zeros((40, 50)))

            def gradients(array, wire=wire, variable=variable):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(variable * array)
                tape = hvd.DistributedGradientTape(tape, compression=wire(**given), op=hvd.Sum)
                (gradient,) = tape.gradient(loss, [variable])
                return gradient

            step = wrap(gradients)
            assert_left_out_comes_later(lambda one, step=step: step(tf.constant(one)), hvd.rank(), hvd.size())


def case_what_is_left_out_is_saved():
    wire = hvd.Compression.int4(everywhere=True)
    variable = tf.Variable(tf.zeros((40, 50)), name="saved")

    def make():
        @tf.function
        def gradients(array):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * array)
            tape = hvd.DistributedGradientTape(tape, compression=wire, op=hvd.Sum)
            return tape.gradient(loss, [variable])[0]

        return lambda array: gradients(tf.constant(array))

    assert_it_is_saved_and_goes_on(hvd, make, "tape.0.saved:0", False)


def case_first_steps_and_gradients_that_are_left_as_they_are():
    wire = hvd.Compression.topk(0.01, everywhere=True, warmup_steps=3)
    whole, bias = tf.Variable(tf.zeros((40, 50))), tf.Variable(tf.zeros(2000))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(whole) + tf.reduce_sum(bias)
        return hvd.DistributedGradientTape(tape, compression=wire, op=hvd.Sum).gradient(loss, [whole, bias])

    for number in range(5):
        compressed, plain = step()
        equal(plain, np.full(2000, hvd.size(), np.float32))
        zeros = np.count_nonzero(compressed.numpy() == 0)
        assert zeros == 0 if number < 3 or hvd.size() == 1 else zeros > 1000, (number, zeros)
    for op, word in ((hvd.Min, "sums and averages"), (hvd.Sum, "ringcomm.torch.DistributedOptimizer")):
        wire = hvd.Compression.int8 if op == hvd.Min else hvd.Compression.powersgd
        try:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(whole)
            hvd.DistributedGradientTape(tape, compression=wire, op=op).gradient(loss, [whole])
            raise AssertionError("it was taken")
        except ValueError as error:
            assert word in str(error), error


def case_compression_by_name():
    for compression in ("none", "fp16", "int8", "onebit", "auto", None):
        hvd.DistributedGradientTape(tf.GradientTape(), compression=compression)
    for compression, nearest in (("int7", "int"), ("bf61", "bf16"), (7, ""), ({"*": "int8"}, "")):
        with pytest.raises(ValueError, match=f"is unknown. Known: {nearest}"):
            hvd.DistributedGradientTape(tf.GradientTape(), compression=compression)


def case_replicas_are_compared():
    """Tapes compare replicas, eagerly and in functions; they skip local sources and tensors."""
    if hvd.size() == 1:
        return
    for number, in_function in enumerate((False, True)):
        shared = tf.Variable([1.0, 2.0], name=f"shared{number}")
        own, table = tf.Variable(float(hvd.rank())), tf.Variable(tf.ones((4, 2)))

        def step(shared=shared, own=own, table=table):
            fixed = tf.constant(float(hvd.rank()))
            tape = hvd.DistributedGradientTape(tf.GradientTape())
            tape.register_local_source(own)
            with tape:
                tape.watch(fixed)
                loss = tf.reduce_sum(shared) * own * fixed + tf.reduce_sum(tf.gather(table, [1, 2]))
            sources = [shared, own, table, fixed]
            for variable, gradient in zip(sources[:2], tape.gradient(loss, sources)[:2], strict=True):
                variable.assign_sub(0.1 * gradient)

        step = tf.function(step) if in_function else step
        with checking("2") as found:
            for count in range(5):
                if count == 3 and hvd.rank() == 1:
                    table.assign_add(tf.ones((4, 2)))
                step()
            equal, different, (text,) = found()
        assert (equal, different) == (1, 1)
        assert "after step 3: 'Variable:0' on rank 1 differs from rank 0's by up to 1. They were equal after" in text
        raised = tf.errors.FailedPreconditionError if in_function else hvd.HorovodInternalError
        with checking("error:1"), pytest.raises(raised, match="differ"):
            step()


def case_check_replicas():
    weights = [tf.Variable([1.0, 2.0], name="w"), tf.Variable("text"), tf.Variable(tf.zeros([0, 2]), name="none")]
    with checking("warn") as found:
        hvd.check_replicas(weights)
        weights[0].assign_add([0.0, hvd.rank()])
        hvd.check_replicas(weights, name="second")
        equal, different, texts = found()
    if hvd.size() == 1:
        assert (equal, different, texts) == (0, 0, [])
    else:
        assert (equal, different) == (1, 1) and "replicas of 'second' differ after step 1: 'w:0'" in texts[0], texts
        with checking("error"), pytest.raises(ringcomm.MismatchError, match="'second' differ after step 2"):
            hvd.check_replicas(weights, name="second")
    with pytest.raises(ValueError, match=r"outside of tf\.function"):
        tf.function(hvd.check_replicas)(weights)


def case_replicas_of_optimizers_of_tensorflow_1():
    if hvd.size() == 1:
        return
    for passes in (1, 2):
        with tf.Graph().as_default(), checking("warn") as found:
            x = tf.compat.v1.get_variable("x", initializer=[1.0 + hvd.rank(), 2.0], dtype=tf.float32)
            inner = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            optimizer = hvd.DistributedOptimizer(inner, name=f"checked{passes}", backward_passes_per_step=passes)
            train_op = optimizer.minimize(tf.reduce_sum(x * x))
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                for _ in range(3 * passes):
                    session.run(train_op)
            equal, different, (text,) = found()
        assert (equal, different) == (0, 1) and "after step 1: 'x:0' on rank" in text
