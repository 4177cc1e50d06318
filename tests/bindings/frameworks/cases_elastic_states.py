"""Cases of states of elastic training for framework_cases.py, in a job that is not elastic.

KERAS_BACKEND names Keras' backend.
"""

import keras
import numpy as np
import pytest

import ringcomm.keras as hvd
from ringcomm._src.base.errors import PeerLostError, RankLeftError
from ringcomm._src.elastic.member.packing import pack, unpack

BACKEND = keras.backend.backend()


def make(seed=0, **options):
    """Returns a model with Dropout's generator and BatchNorm's means."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(5), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=1)]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), loss="mse", **options)
    return model


def fit(model, callbacks=(), steps=4, epochs=1, **options):
    x, y = np.ones((2 * steps, 4)) * np.arange(2 * steps)[:, None], np.arange(2.0 * steps)
    options |= {"batch_size": 2, "epochs": epochs, "verbose": 0, "shuffle": False}
    return model.fit(x, y, callbacks=list(callbacks), **options)


def values(state):
    return [np.array(keras.ops.convert_to_numpy(one)) for one in state.tracked()]


def same(ones, others):
    assert len(ones) == len(others)
    return all(np.array_equal(one, other) for one, other in zip(ones, others, strict=True))


def case_sync_gives_all_ranks_the_first_ones():
    model = make(hvd.rank())
    state = hvd.elastic.KerasState(model, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    state.sync()
    assert (state.batch, state.epoch) == (20, 10)
    assert all(same(values(state), others) for others in hvd.allgather_object(values(state)))


def case_restore_brings_back_what_was_saved():
    model = make()
    state = hvd.elastic.KerasState(model, batch=1)
    fit(model)
    state.batch = 2
    state.commit()
    committed = values(state)
    fit(model)
    state.batch = 3
    assert not same(values(state), committed)
    state.restore()
    assert same(values(state), committed) and state.batch == 2
    fit(model)  # continues from the restored state
    after = values(state)
    state.restore()
    fit(model)
    assert same(values(state), after)


def case_restore_within_fit():
    """After a restore within fit, the trainer continues with the restored values."""
    model = make()
    state = hvd.elastic.KerasState(model)

    class Back(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            state.restore()

    before = values(state)
    fit(model, [Back()])
    assert same(values(state), before)


def case_commits_within_fit_hold_the_batch_before():
    """A commit within fit equals the state of a training that ends with that batch."""
    model, short = make(), make()
    state = hvd.elastic.KerasState(model)
    seen = []

    class Keep(hvd.elastic.CommitStateCallback):
        def commit(self):
            super().commit()
            seen.append(unpack(*(copied(part) for part in pack(state.contents()))))

    fit(model, [Keep(state, batches_per_commit=2)])
    assert len(seen) == 3  # after batches 2 and 4, and at the end of the epoch
    other = hvd.elastic.KerasState(short)
    fit(short, steps=2)
    assert same([np.array(keras.ops.convert_to_numpy(one)) for one in seen[0]["variables"]], values(other))


def copied(part):
    return part if isinstance(part, bytes) else [bytearray(one) for one in part]


def case_a_state_of_another_model_is_refused():
    state, other = hvd.elastic.KerasState(make(), batch=1), hvd.elastic.KerasState(make(), batch=2)
    smaller = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="variables, and the model has 2"):
        hvd.elastic.KerasState(smaller).put_back(state.contents())
    contents = state.contents()
    contents["variables"][0] = contents["variables"][1]
    with pytest.raises(ValueError, match="kernel was saved with shape"):
        other.put_back(contents)
    assert other.batch == 2
    with pytest.raises(ValueError, match="build"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


def case_an_uncompiled_model_and_an_optimizer():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert len(hvd.elastic.KerasState(model).tracked()) == 2
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    state = hvd.elastic.KerasState(model, optimizer)
    assert state.optimizer is optimizer and len(state.tracked()) == 2 + 4


def case_run_starts_in_step():
    """Outside of elastic jobs, run broadcasts rank 0's values, and returns the result."""

    @hvd.elastic.run
    def train(state, more):
        fit(state.model)
        return state.batch + more

    state = hvd.elastic.KerasState(make(hvd.rank()), batch=hvd.rank())
    assert train(state, more=5) == 5
    assert all(same(values(state), others) for others in hvd.allgather_object(values(state)))


def case_a_loss_is_known_by_the_text_of_the_frameworks_error():
    """Frameworks' errors that name a lost rank become ringcomm's; others are unchanged."""
    if BACKEND == "torch":  # torch operations raise ringcomm's errors directly
        return
    make_error = of_jax if BACKEND == "jax" else of_a_graph
    for text, expected in (
        ("of node x: ringcomm.PeerLostError: rank 1 of 2 has died [[x]]", PeerLostError),
        ("ringcomm.RankLeftError: rank 1 has left", RankLeftError),
        ("ringcomm.MismatchError: ranks disagree", type(make_error(""))),
        ("out of memory", type(make_error(""))),
    ):

        @hvd.elastic.run
        def train(state, text=text):
            raise make_error(text)

        with pytest.raises(expected) as found:
            train(hvd.elastic.KerasState(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])))
        assert type(found.value) is expected


def of_jax(text):
    import jax

    return jax.errors.JaxRuntimeError(text)


def of_a_graph(text):
    import tensorflow as tf

    return tf.errors.UnavailableError(None, None, text)


if BACKEND == "tensorflow":
    import tensorflow as tf

    import ringcomm.tensorflow as of_tensorflow

    def case_horovods_names():
        import ringcomm.as_horovod  # noqa: F401, I001  the first
        import horovod.keras.elastic
        import horovod.tensorflow.elastic
        import horovod.tensorflow.keras.elastic

        assert horovod.tensorflow.elastic is of_tensorflow.elastic
        assert horovod.keras.elastic is horovod.tensorflow.keras.elastic is hvd.elastic
        state = horovod.tensorflow.elastic.TensorFlowKerasState(make(), backend=None, batch=3)
        assert isinstance(state, hvd.elastic.KerasState) and state.batch == 3

    def case_variables_of_tensorflow():
        rank = float(hvd.rank())
        some = [tf.Variable([1.0 + rank, 2.0]), tf.Variable(tf.cast(rank, tf.bfloat16)), tf.Variable(["a", str(rank)])]
        state = of_tensorflow.elastic.TensorFlowState(some, step=hvd.rank(), history=tf.constant([rank]))
        state.sync()
        assert [one.numpy().tolist() for one in some[:2]] == [[1.0, 2.0], 0.0] and state.step == 0
        assert some[1].dtype == tf.bfloat16 and state.history.numpy().tolist() == [0.0]
        some[0].assign([5.0, 6.0])
        some[2].assign(["x", "y"])
        state.commit()
        some[0].assign([0.0, 0.0])
        some[2].assign(["z", "z"])
        state.restore()
        assert some[0].numpy().tolist() == [5.0, 6.0] and some[2].numpy().tolist() == [b"x", b"y"]

    def case_what_states_of_tensorflow_refuse():
        with pytest.raises(ValueError, match="session"):
            of_tensorflow.elastic.TensorFlowState([tf.Variable(1.0)], session=object())
        with pytest.raises(ValueError, match="session"), tf.Graph().as_default():
            of_tensorflow.elastic.TensorFlowState([])
        with pytest.raises(ValueError, match="needs a list of variables"):
            of_tensorflow.elastic.TensorFlowState()


if BACKEND == "jax":
    import jax
    import jax.numpy as jnp

    import ringcomm.jax

    def case_pytrees_come_back():
        """Restores keys, weak types, and arrays that were donated after the commit."""
        change = jax.jit(lambda one: one + 1, donate_argnums=0)
        tree = {"large": (jnp.zeros(1000), [jnp.ones(3, jnp.bfloat16)]), "weak": jnp.asarray(1.0)}
        state = ringcomm.jax.elastic.ObjectState(tree=tree, key=jax.random.key(5), step=hvd.rank())
        state.sync()
        state.tree = jax.tree.map(change, state.tree)
        state.commit()
        expected = jax.tree.map(np.asarray, state.tree)
        jax.tree.map(change, state.tree)
        state.key = jax.random.split(state.key)[0]
        state.restore()
        assert jax.tree.structure(state.tree) == jax.tree.structure(expected) and state.step == 0
        for one, other in zip(jax.tree.leaves(state.tree), jax.tree.leaves(expected), strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)
        assert state.tree["weak"].weak_type and not state.tree["large"][0].weak_type
        assert jnp.array_equal(jax.random.normal(state.key), jax.random.normal(jax.random.key(5)))


def case_tensors_are_packed_where_they_lie():
    """Packs large tensors outside of the stream, without copies; unpacking restores their dtypes."""
    given = {
        dtype: keras.ops.cast(keras.ops.ones((3, 1000)), dtype) for dtype in ("float32", "bfloat16", "int32", "bool")
    }
    stream, parts = pack(given)
    assert len(stream) < 1000 and sum(part.nbytes for part in parts) == 3000 * (4 + 2 + 4 + 1)
    back = unpack(stream, [bytearray(part) for part in parts])
    for dtype, one in back.items():
        assert keras.backend.standardize_dtype(one.dtype) == dtype and one.shape == given[dtype].shape
        assert np.array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(given[dtype]))
        assert type(one) is type(given[dtype])
