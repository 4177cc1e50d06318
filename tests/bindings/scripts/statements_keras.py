"""Templates and statements of scripts for `ringcomm.keras`.

Simple ones are first, because hypothesis shrinks to them.
"""

from __future__ import annotations

from user_statements import statements

SETUP = [
    """\
model = {MODELS}
optimizer = {DISTRIBUTED}
model.compile(optimizer=optimizer, loss='mse'{COMPILE})
{BEFORE?}"""
]

MODELS = [
    "mlp()",
    "words()",
    "normed()",
    "custom()",
    "partly_frozen()",
]

DISTRIBUTED = [
    "hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS})",
    "copy.deepcopy(hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS}))",
    "clone(hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS}))",
    "deserialized(hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS}))",
    "pickled(hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS}))",
    "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer({OPTIMIZERS}, initial_scale=4.0))",
    "keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer({OPTIMIZERS}), initial_scale=4.0)",
    "hvd.DistributedOptimizer({OPTIMIZERS}, backward_passes_per_step=2)",
    "hvd.DistributedOptimizer({OPTIMIZERS}, backward_passes_per_step=2, average_aggregated_gradients=True)",
]

OPTIMIZERS = [
    "keras.optimizers.SGD(0.1)",
    "keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)",
    "keras.optimizers.Adam(0.01, epsilon=1e-2)",
    "keras.optimizers.AdamW(0.01, epsilon=1e-2, weight_decay=0.1)",
    "keras.optimizers.SGD(0.1, clipnorm=0.1)",
    "keras.optimizers.SGD(0.1, clipvalue=0.02)",
    "keras.optimizers.SGD(0.1, global_clipnorm=0.2)",
    "keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2)",
    "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))",
    "keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)",
    "keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, global_clipnorm=0.2)",
    "keras.optimizers.SGD(0.1, loss_scale_factor=8.0)",
    "keras.optimizers.RMSprop(0.01, epsilon=1e-1)",
]

OPTIONS = [
    "",
    ", op=hvd.Sum",
    ", num_groups=2",
    ", sparse_as_dense=True",
    ", gradient_predivide_factor=2.0",
    ", compression=hvd.Compression.fp16",
    ", algorithm='ring'",
]

COMPILE = [
    "",
    ", jit_compile=False",
    ", run_eagerly=True",
    ", steps_per_execution=2",
    ", metrics=['mae']",
    ", jit_compile=True",
    ", weighted_metrics=['mse'], auto_scale_loss=False",
]

BEFORE = statements("""
hvd.broadcast_variables(model.variables, root_rank=0)

model.layers[0].trainable = False
model.compile(optimizer=optimizer, loss='mse', jit_compile=False)

model.set_weights([w * (rank + 1) for w in model.get_weights()])
hvd.broadcast_variables(model.variables, root_rank=size - 1)

optimizer.build(model.trainable_variables)

note('mean', hvd.allreduce(float(rank), name='mean'))
""")

CALLBACKS = [
    "",
    "hvd.callbacks.BroadcastGlobalVariablesCallback(size - 1)",
    "hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()",
    "hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1, steps_per_epoch=2)",
    "hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5 ** epoch)",
    "keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)",
    "hvd.callbacks.MetricAverageCallback(), keras.callbacks.EarlyStopping('loss', patience=1, min_delta=-1)",
    "keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: None)",
    "keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: note('epoch', epoch))",
]

PHASES = [
    """\
x, y = data(8)
history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[{CALLBACKS}])
see(model)""",
    """\
x, y = data(7)
history = model.fit(x, y, batch_size=3, epochs=2, shuffle=False, verbose=0, callbacks=[{CALLBACKS}])
see(model)""",
    """\
for _ in range(3):
    model.train_on_batch(*data(3 + rank))
see(model)""",
    """\
x, y = data(6)
model.fit(x, y, batch_size=3, sample_weight=np.arange(6.0) + rank, shuffle=False, verbose=0)
see(model)""",
    """\
x, y = data(8)
history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=data(4 + rank),
                    callbacks=[hvd.callbacks.MetricAverageCallback()])
note_history(history)
see(model)""",
    """\
ours = hvd.DistributedOptimizer({OPTIMIZERS}{OPTIONS})
for step in range(3):
    ours.apply([keras.ops.ones(v.shape, v.dtype) * (rank + step) for v in model.trainable_variables],
               model.trainable_variables)
see(model)""",
]

CHANGES = [
    "",
    *statements("""
model.layers[0].trainable = False
model.compile(optimizer=optimizer, loss='mse', jit_compile=False)

model.layers[-1].trainable = False
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
model.compile(optimizer=optimizer, loss='mse', jit_compile=False)

for layer in model.layers:
    layer.trainable = True
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
model.compile(optimizer=optimizer, loss='mse', jit_compile=False)

if not isinstance(model.optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
    model.optimizer.learning_rate = 0.03

weights = model.get_weights()
model.set_weights([w * 0.9 for w in weights])

path = folder()
model.save(path)
model = hvd.load_model(path, custom_objects=known)

path = folder()
model.save(path)
model = keras.models.load_model(path, custom_objects=known)
model.compile(optimizer=hvd.DistributedOptimizer(model.optimizer), loss='mse', jit_compile=False)

model = keras.models.clone_model(model)
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01, epsilon=1e-2)), loss='mse',
              jit_compile=False)
hvd.broadcast_variables(model.variables, root_rank=0)

model.compile(optimizer=clone(model.optimizer), loss='mse', jit_compile=False)

model.evaluate(*data(4), verbose=0)
model.predict(data(4)[0], verbose=0)

if rank == 0:
    model.predict(data(4)[0], verbose=0)
else:
    data(4)

hvd.broadcast_variables(model.optimizer.variables, root_rank=0)
"""),
]

END = ["see(model)"]

REFUSED = {
    "XLA cannot run collectives": ["jit_compile=True"],
    "pass backward_passes_per_step or gradient_accumulation_steps": ["backward_passes_per_step"],
    "distributed already": ["load_model"],
}
