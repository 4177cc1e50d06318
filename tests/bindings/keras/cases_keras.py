"""Cases of ringcomm.keras for framework_cases.py, on the backend that KERAS_BACKEND names."""

import copy as copies
import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from framework_cases import assert_it_is_saved_and_goes_on, assert_left_out_comes_later, checking

import ringcomm.keras as hvd

BACKEND = keras.backend.backend()
random = np.random.default_rng(0)
IMAGES, ROWS = random.normal(size=(60, 8)).astype(np.float32), random.integers(0, 10, (60, 3))
TARGETS = random.normal(size=(60, 1)).astype(np.float32)


def whole_batch():
    """Returns the rows of a global batch; ranks get equal shards, in one pass and in two."""
    return 10 if hvd.size() == 5 else 12


def make(embedding=False):
    keras.utils.set_random_seed(1 + hvd.rank())
    if embedding:
        first = [keras.Input((3,), dtype="int32"), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
    else:
        first = [keras.Input((8,)), keras.layers.Dense(5, activation="tanh")]
    return keras.Sequential([*first, keras.layers.Dense(1)])


def weights(model):
    return [np.asarray(keras.ops.convert_to_numpy(one)) for one in model.trainable_variables]


def shard(values):
    """Returns this rank's rows of every batch, concatenated."""
    batches = np.split(values, len(values) // whole_batch())
    return np.concatenate([np.array_split(one, hvd.size())[hvd.rank()] for one in batches])


def trained(optimizer, embedding, share, epochs=2, passes=1, **options):
    """Returns the trained model and its history."""
    model, x, y, batch, callbacks = make(embedding), ROWS if embedding else IMAGES, TARGETS, whole_batch(), []
    if not share or hvd.rank() == 0:
        generator = np.random.default_rng(7)
        for variable in model.trainable_variables:
            variable.assign(generator.normal(size=variable.shape))
    if share:
        options |= {"backward_passes_per_step": passes, "average_aggregated_gradients": True}
        optimizer = hvd.DistributedOptimizer(optimizer, **options)
        x, y, batch = shard(x), shard(y), whole_batch() // hvd.size() // passes
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return model, history.history


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
}


def case_training():
    if whole_batch() % (2 * hvd.size()):
        return
    for name, optimizer in OPTIMIZERS.items():
        for embedding in (False, True):
            alone, alone_history = trained(optimizer(), embedding, False)
            for passes in (1, 2) if name == "sgd" else (1,):
                together, history = trained(optimizer(), embedding, True, passes=passes)
                for one, other in zip(weights(together), weights(alone), strict=True):
                    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=f"{name} {passes}")
                for key, value in history.items():
                    np.testing.assert_allclose(value, alone_history[key], rtol=1e-4, err_msg=key)


def case_options():
    alone, _ = trained(OPTIMIZERS["sgd"](), False, False)
    for options in (
        {"num_groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"sparse_as_dense": True},
    ):
        together, _ = trained(OPTIMIZERS["sgd"](), False, True, **options)
        for one, other in zip(weights(together), weights(alone), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=str(options))


def case_what_is_left_out_of_gradients_comes_later():
    wire = hvd.Compression.onebit(everywhere=True, warmup_steps=0)
    variable = keras.Variable(np.zeros((40, 50), np.float32))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=wire, op=hvd.Sum)
    optimizer.build([variable])

    def step(array):
        variable.assign(np.zeros((40, 50), np.float32))
        optimizer.apply([keras.ops.convert_to_tensor(array)], [variable])
        return -np.asarray(keras.ops.convert_to_numpy(variable))

    assert_left_out_comes_later(step, hvd.rank(), hvd.size())


def case_what_is_left_out_is_saved():
    variable = keras.Variable(np.zeros((40, 50), np.float32), name="saved")
    ratios = iter((0.1, 0.2, 0.05))  # different values, so that no eager program finds the operation in its cache

    def make():
        wire = hvd.Compression.topk(next(ratios), everywhere=True, warmup_steps=0)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), "of.saved", compression=wire)
        optimizer.build([variable])

        def step(array):
            variable.assign(np.zeros((40, 50), np.float32))
            optimizer.apply([keras.ops.convert_to_tensor(array)], [variable])
            return -np.asarray(keras.ops.convert_to_numpy(variable))

        return step

    assert_it_is_saved_and_goes_on(hvd, make, f"of.saved.0.{variable.path}", True)


def case_saved_models_load_plain():
    model, _ = trained(OPTIMIZERS["adam"](), False, True, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        program = (
            "import sys; sys.modules['ringcomm'] = None\n"
            "import keras, numpy as np\n"
            f"model = keras.models.load_model({str(path)!r})\n"
            "assert type(model.optimizer).__name__ == 'Adam'\n"
            f"assert int(model.optimizer.iterations) == {60 // whole_batch()}\n"
            f"np.save({str(path) + '.npy'!r}, model.predict(np.ones((2, 8)), verbose=0))\n"
            "model.fit(np.ones((2, 8)), np.ones((2, 1)), verbose=0)\n"
        )
        if hvd.rank() == 0:
            mpi = ("PMI_", "PMIX_", "MPI", "OMPI_", "HYD")  # a separate process that belongs to no job
            variables = {key: value for key, value in os.environ.items() if not key.startswith(mpi)}
            subprocess.run([sys.executable, "-c", program], check=True, env=variables, timeout=120)
            expected = model.predict(np.ones((2, 8)), verbose=0)
            np.testing.assert_allclose(np.load(f"{path}.npy"), expected, rtol=1e-5)
        loaded = hvd.load_model(path)
        assert hasattr(type(loaded.optimizer), "_ringcomm_base") and type(loaded.optimizer).__name__ == "Adam"
        for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
            one, other = (keras.ops.convert_to_numpy(variable) for variable in (one, other))
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        loaded.fit(shard(IMAGES), shard(TARGETS), verbose=0)


def case_overflow_on_one_rank():
    """All ranks skip the step, however the LossScaleOptimizer was created."""
    for how in ("given", "by the policy", "around it"):
        keras.config.set_dtype_policy("mixed_float16" if how == "by the policy" else "float32")
        try:
            model = make()
            inner = keras.optimizers.SGD(0.1)
            if how == "given":
                optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner))
            elif how == "by the policy":
                optimizer = hvd.DistributedOptimizer(inner)
            else:
                optimizer = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(inner))
            model.compile(optimizer=optimizer, loss="mse")
            targets = TARGETS[:8].copy()
            if hvd.rank() == hvd.size() - 1:
                targets[3] = np.inf
            before = weights(model)
            send = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
            model.fit(IMAGES[:8], targets, batch_size=8, epochs=2, verbose=0, callbacks=[send])
            root = hvd.broadcast_object(before, 0)
            for one, other in zip(weights(model), root, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=how)
            assert float(model.optimizer.dynamic_scale) == 2.0**13, how
        finally:
            keras.config.set_dtype_policy("float32")


def case_overflow_under_a_policy_that_comes_later():
    """Keras wraps the optimizer in a LossScaleOptimizer, which calls no code of ringcomm."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make()
        model.compile(optimizer=optimizer, loss="mse")
        targets = TARGETS[:8].copy()
        if hvd.rank() == 0:
            targets[3] = np.inf
        model.fit(IMAGES[:8], targets, batch_size=8, verbose=0)
        assert float(model.optimizer.dynamic_scale) == 2.0**14
    finally:
        keras.config.set_dtype_policy("float32")


def averages(optimizer):
    """Asserts that a step of the optimizer uses the mean of the ranks' gradients, reduced once."""
    variable = keras.Variable(np.zeros(3, np.float32))
    optimizer.build([variable])
    scale = float(getattr(optimizer, "dynamic_scale", 1.0))
    gradients = [keras.ops.convert_to_tensor(np.full(3, hvd.rank() * scale, np.float32))]
    if BACKEND == "jax":  # Keras' LossScaleOptimizer has only this way on JAX
        state = [one.value for one in optimizer.variables]
        variable.assign(optimizer.stateless_apply(state, gradients, [variable.value])[0][0])
    else:
        optimizer.apply(gradients, [variable])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), np.full(3, (1 - hvd.size()) / 2), rtol=1e-6)


def case_copies_are_distributed():
    keras_side = keras.optimizers.deserialize, keras.optimizers.serialize
    for wrap in (lambda one: one, keras.optimizers.LossScaleOptimizer):
        made = hvd.DistributedOptimizer(wrap(keras.optimizers.SGD(1.0)))
        model = make()
        model.compile(optimizer=made, loss="mse")
        other = make()
        other.compile_from_config(model.get_compile_config())
        for copy in (
            type(made).from_config(made.get_config()),
            copies.deepcopy(made),
            pickle.loads(pickle.dumps(made)),
            keras_side[0](keras_side[1](made)),
            keras.optimizers.get(keras_side[1](made)),
            keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made)),
            made,
        ):
            assert type(copy) is type(made)
            averages(copy)
        assert type(other.optimizer) is type(copies.copy(made)) is type(made)
        with pytest.raises(ValueError, match="was loaded from a file"):
            type(made).from_config(json.loads(json.dumps(made.get_config())))
    twice = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    copy = copies.deepcopy(twice)
    assert copy._ringcomm_reduction.op == hvd.Sum and copy._ringcomm_reduction.name != twice._ringcomm_reduction.name
    twice.register_local_var(keras.Variable(1.0))
    with pytest.raises(TypeError, match="local variables"):
        pickle.dumps(twice)


def case_the_inner_optimizer_is_distributed():
    """Distributes a LossScaleOptimizer's inner optimizer: gradients are reduced once."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        inner = keras.optimizers.SGD(1.0)
        outer = hvd.DistributedOptimizer(inner, op=hvd.Average)
        assert outer.inner_optimizer is inner
        averages(copies.deepcopy(inner))
        averages(outer)
    finally:
        keras.config.set_dtype_policy("float32")


def case_an_optimizer_that_has_been_used():
    model = make()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    part = slice(hvd.rank(), None, hvd.size())
    model.fit(IMAGES[part], TARGETS[part], batch_size=4, verbose=0)
    hvd.DistributedOptimizer(model.optimizer)
    hvd.broadcast_variables(model.weights, 0)
    model.fit(IMAGES[part], TARGETS[part], batch_size=4, steps_per_epoch=3, verbose=0)
    for number, one in enumerate(weights(model)):
        everybody = hvd.allgather(one[None], name=f"used.{number}")
        assert all(np.array_equal(other, everybody[0]) for other in everybody)


def case_an_optimizer_in_a_function():
    if BACKEND != "tensorflow":
        return
    import tensorflow as tf

    optimizer, variable = keras.optimizers.SGD(0.1), keras.Variable(np.zeros(3, np.float32))
    step = tf.function(lambda: optimizer.apply([tf.ones(3)], [variable]))
    optimizer.build([variable])
    step()
    with pytest.raises(ValueError, match="part of a traced function"):
        hvd.DistributedOptimizer(optimizer)
    del step
    hvd.DistributedOptimizer(optimizer)


def case_random_generators_stay_apart():
    """Each rank has different masks of Dropout."""
    keras.utils.set_random_seed(7 + hvd.rank())
    model = keras.Sequential([keras.Input((200,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    send = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(np.ones((4, 200)), np.ones((4, 1)), verbose=0, callbacks=[send])
    mask = np.asarray(keras.ops.convert_to_numpy(model.layers[0](np.ones((1, 200), np.float32), training=True)))
    masks = hvd.allgather(mask, name="masks")
    assert len({one.tobytes() for one in masks}) == hvd.size()


def case_ranks_that_have_built_more():
    """Ranks have built different numbers of layers, models and optimizers, which Keras numbers."""
    for _ in range(hvd.rank()):
        make()
        keras.optimizers.SGD(0.1)
    model, _ = trained(keras.optimizers.Adam(0.1), False, True)
    hvd.broadcast_variables(model.variables, 0)


def case_learning_rates():
    size = hvd.size()
    model = make()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), loss="mse")
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2),
        hvd.callbacks.LearningRateScheduleCallback(0.5, 0.1, start_epoch=3),
        Watch(),
    ]
    model.fit(IMAGES[:20], TARGETS[:20], batch_size=5, epochs=4, verbose=0, callbacks=callbacks)
    steps = np.arange(1, 9) / 4
    np.testing.assert_allclose(seen[:8], 0.5 / size * (steps * (size - 1) / 2 + 1), rtol=1e-5)
    np.testing.assert_allclose(seen[8:], [0.5] * 4 + [0.05] * 4, rtol=1e-5)


def case_momentum_correction():
    """The velocity includes the learning rate, so it is rescaled once when the rate changes."""
    for corrected in (True, False):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.5), loss=lambda y, p: p)  # every gradient is 1
        schedule = hvd.callbacks.LearningRateScheduleCallback(
            0.01, lambda epoch: 10.0 if epoch >= 1 else 1.0, momentum_correction=corrected
        )
        start = float(weights(model)[0][0, 0])
        model.fit(
            np.ones((4, 1)), np.ones((4, 1)), batch_size=2, epochs=2, shuffle=False, verbose=0, callbacks=[schedule]
        )
        velocity, weight = 0.0, start
        for step, rate in enumerate((0.01, 0.01, 0.1, 0.1)):
            velocity *= 10.0 if corrected and step == 2 else 1.0
            velocity = 0.5 * velocity - rate
            weight += velocity
        np.testing.assert_allclose(weights(model)[0][0, 0], weight, rtol=1e-5, err_msg=str(corrected))


def case_rates_that_change_in_an_epoch_are_used():
    """Rates take effect within an epoch on JAX too, whose trainer holds variables' values."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss=lambda y, p: p)
    start = float(weights(model)[0][0, 0])
    schedule = hvd.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: epoch, staircase=False)
    model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0, callbacks=[schedule])
    np.testing.assert_allclose(weights(model)[0][0, 0], start - (0.25 + 0.5 + 0.75), rtol=1e-5)


def case_relaxed_callbacks():
    """Ranks with different numbers of batches end with identical, trained models."""
    for callback in (
        hvd.callbacks.PeriodicAveragingCallback(every=2),
        hvd.callbacks.OuterStepCallback(every=3, fragments=2),
        hvd.callbacks.ElasticAveragingCallback(every=2),
        hvd.callbacks.GossipCallback(topology="ring"),
        hvd.callbacks.ParameterStoreCallback(),
    ):
        model = make()
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
        rows = 30 + 15 * (hvd.rank() % 3)
        before = float(model.evaluate(IMAGES, TARGETS, verbose=0))
        model.fit(IMAGES[:rows], TARGETS[:rows], batch_size=5, epochs=3, verbose=0, callbacks=[callback])
        for number, one in enumerate(weights(model)):
            everybody = hvd.allgather(one[None], name=f"relaxed.{number}")
            assert all(np.array_equal(other, everybody[0]) for other in everybody), type(callback)
        assert float(model.evaluate(IMAGES, TARGETS, verbose=0)) < before, type(callback)


def case_best_model_checkpoint():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/best.keras"
        model = make()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        callbacks = [hvd.callbacks.MetricAverageCallback(), hvd.callbacks.BestModelCheckpoint(path, monitor="loss")]
        model.fit(shard(IMAGES), shard(TARGETS), epochs=1, verbose=0, callbacks=callbacks)
        assert os.path.exists(path) == (hvd.rank() == 0)


def case_values():
    rank, size = hvd.rank(), hvd.size()
    value = keras.ops.convert_to_tensor(np.full(3, rank, np.float32))
    np.testing.assert_array_equal(hvd.allreduce(value, op=hvd.Sum), np.full(3, size * (size - 1) / 2))
    np.testing.assert_array_equal(hvd.allgather(value), np.repeat(np.arange(size), 3))
    assert np.shape(hvd.allreduce(1.0)) == np.shape(hvd.broadcast(1.0, 0)) == ()
    np.testing.assert_array_equal(hvd.broadcast(value, size - 1), np.full(3, size - 1))
    assert hvd.allgather_object(rank) == list(range(size))


def case_bad_arguments():
    made = hvd.DistributedOptimizer(keras.optimizers.SGD())
    for bad in (
        lambda: hvd.DistributedOptimizer(made),
        lambda: hvd.DistributedOptimizer("sgd"),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=0),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), gradient_predivide_factor=2.0, op=hvd.Sum),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=0),
    ):
        try:
            bad()
        except ValueError as error:
            assert str(error)
        else:
            raise AssertionError("it was taken")


def case_uneven_batches():
    """Every rank waits for an operation that another rank never calls, so all raise the same error."""
    if BACKEND == "jax":  # JAX's effect tokens make programs fail after one that has failed
        return
    os.environ["RINGCOMM_STALL_WARN_SECONDS"] = "1"
    hvd.shutdown()
    hvd.init()
    try:
        model = make()
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        rows = 16 if hvd.rank() == 0 else 8
        with pytest.raises(Exception, match="every rank waits") as caught:
            callbacks = [hvd.callbacks.MetricAverageCallback()]
            model.fit(IMAGES[:rows], TARGETS[:rows], batch_size=4, verbose=0, callbacks=callbacks)
        assert "'allreduce.metrics'" in str(caught.value) and "uneven numbers of batches" in str(caught.value)
    finally:
        del os.environ["RINGCOMM_STALL_WARN_SECONDS"]
        hvd.shutdown()
        hvd.init()


if BACKEND == "tensorflow":
    import tensorflow as tf

    def case_horovods_names():
        from ringcomm.tensorflow.keras.callbacks import MetricAverageCallback

        import ringcomm.tensorflow as of_tensorflow
        import ringcomm.tensorflow.keras

        assert ringcomm.tensorflow.keras is hvd and MetricAverageCallback is hvd.callbacks.MetricAverageCallback
        made = of_tensorflow.DistributedOptimizer(keras.optimizers.Adam())
        assert hasattr(type(made), "_ringcomm_base")

    def case_exported_models_hold_no_op_of_ours():
        model, _ = trained(OPTIMIZERS["adam"](), False, True, epochs=1)
        with tempfile.TemporaryDirectory() as folder:
            model.export(folder)
            assert b"RingcommRun" not in Path(folder, "saved_model.pb").read_bytes()
            loaded = tf.saved_model.load(folder)
            served = loaded.serve(tf.ones((2, 8)))
            np.testing.assert_allclose(served, model.predict(np.ones((2, 8)), verbose=0), rtol=1e-5)

    def case_jit_compile():
        """An explicit jit_compile=True raises one error; the automatic choice is off."""
        for choice, callbacks in (
            (True, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]),
            (True, []),
            ("auto", [hvd.callbacks.MetricAverageCallback()]),
        ):
            model = make()
            if choice == "auto":
                model._resolve_auto_jit_compile = lambda: True  # simulates a machine with a GPU
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
            model.compile(optimizer=optimizer, loss="mse", jit_compile=choice)
            try:
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    model.fit(IMAGES[:8], TARGETS[:8], verbose=0, callbacks=callbacks)
            except ValueError as error:
                assert choice is True and "jit_compile=False to" in str(error), error
            else:
                if choice is True:  # a single rank communicates only in callbacks
                    assert hvd.size() == 1 and not callbacks
                    continue
                assert not model.jit_compile
                assert any("jit_compile is turned off" in str(one.message) for one in said)


def case_compression_by_name():
    for compression in ("none", "fp16", "int8", "onebit", "auto", None):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=compression)
    for compression, nearest in (("int7", "int"), ("bf61", "bf16"), (7, ""), ({"*": "int8"}, "")):
        with pytest.raises(ValueError, match=f"is unknown. Known: {nearest}"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=compression)


def case_check_replicas():
    model = make()
    hvd.broadcast_variables(model.variables, 0)
    with checking("warn") as found:
        hvd.check_replicas(model.variables)
        kernel = model.trainable_variables[0]
        kernel.assign(kernel.value + hvd.rank())
        hvd.check_replicas(model.variables, name="saved")
        equal, different, texts = found()
    if hvd.size() == 1:
        assert (equal, different, texts) == (0, 0, [])
    else:
        assert (equal, different) == (1, 1) and "replicas of 'saved' differ after step 1: '" in texts[0], texts
        assert "kernel" in texts[0]


def case_replicas_are_compared():
    """Compares replicas after the first step's broadcast; without a broadcast they differ."""
    last = hvd.size() - 1
    for passes, broadcast, local in ((1, True, False), (1, False, False), (2, False, False), (1, False, True)):
        model = make()
        optimizer = keras.optimizers.SGD(0.01, name=f"checked{passes}{broadcast}{local}")
        options = {"local_layers": model.layers} if local else {"backward_passes_per_step": passes}
        made = hvd.PartialDistributedOptimizer if local else hvd.DistributedOptimizer
        model.compile(made(optimizer, **options), "mse")
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(last)] if broadcast else []
        with checking("warn") as found:
            model.fit(IMAGES[:12], TARGETS[:12], batch_size=2, verbose=0, callbacks=callbacks)
            equal, different, texts = found()
        assert (equal, different) == ((0, 0) if local else (1, 0) if broadcast else (0, 1)), (passes, broadcast)
        if different:
            assert "after step 1: 'sequential" in texts[0] and "/kernel' on rank" in texts[0], texts
        else:
            assert not texts
