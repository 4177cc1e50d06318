"""Templates and statements of scripts for `ringcomm.tensorflow`.

Simple ones are first, because hypothesis shrinks to them.
"""

from __future__ import annotations

from user_statements import statements

SETUP = [
    """\
net = {NETS}
optimizer = {OPTIMIZERS}
{BEFORE?}"""
]

NETS = ["mlp()", "words()", "mlp(extra=True)", "words(extra=True)", "mlp('float32')", "words('float32')", "chosen()"]

OPTIMIZERS = [
    "optimizers.SGD(0.1)",
    "optimizers.SGD(0.1, momentum=0.9, nesterov=True)",
    "optimizers.Adam(0.01, epsilon=1e-3)",
    "optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.1)",
    "optimizers.SGD(0.1, global_clipnorm=0.2)",
    "optimizers.SGD(0.1, clipnorm=0.1)",
    "optimizers.SGD(0.1, clipvalue=0.02)",
    "optimizers.RMSprop(0.01, epsilon=1e-2)",
    "optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))",
    "optimizers.SGD(0.1, gradient_accumulation_steps=2)",
]

BEFORE = statements("""
hvd.broadcast_variables(net.variables, root_rank=0)

net.variables[0].assign(net.variables[0] * (rank + 1))
hvd.broadcast_variables(net.variables, root_rank=size - 1)

optimizer.build(net.variables)

note('all', hvd.allgather(tf.fill([1 + rank, 2], rank)))
""")

OPTIONS = [
    "",
    ", op=hvd.Sum",
    ", sparse_as_dense=True",
    ", num_groups=2",
    ", gradient_predivide_factor=2.0",
    ", compression=hvd.Compression.fp16",
    ", groups=[net.variables[:2]]",
    ", algorithm='ring'",
    ", process_set=hvd.add_process_set(list(range(1, size)))",
]

DECORATORS = [
    "@tf.function",
    "",
    "@tf.function(reduce_retracing=True)",
    "@tf.function(autograph=False)",
    "@tf.function",
    "@tf.function(input_signature=signature)",
    "@tf.function(reduce_retracing=True)",
    "@tf.function(jit_compile=True)",
]

LOSSES = [
    "loss(net, x, y)",
    "loss(net, x, y) * (rank + 1)",
    "hvd.allreduce(loss(net, x, y))",
    "hvd.allreduce(loss(net, x, y), op=hvd.Sum) * 0.5",
    "tf.cond(tf.reduce_sum(x) > 0, lambda: loss(net, x, y), lambda: 2 * loss(net, x, y))",
    "tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v * 0.5 + loss(net, x, y)), (0, loss(net, x, y)))[1]",
    "tf.recompute_grad(lambda: loss(net, x, y))()",
    "tf.reduce_mean(tf.map_fn(lambda row: tf.reduce_sum(net(row[None])), x))",
    "loss(net, x, y) if rank == 0 else 0.5 * tf.reduce_sum(tf.abs(net(x)))",
    "loss(net, x, hvd.broadcast(y[0], root_rank=size - 1))",
    "tf.reduce_mean(hvd.allgather(net(x)) ** 2)",
    "part(net, x, y) + 0.5 * part(net, -x, y)",
    "tf.cond(tf.reduce_sum(x) > -1e9, lambda: hvd.allreduce(loss(net, x, y)), lambda: 2 * loss(net, x, y))",
    "tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v * 0.5 + part(net, x, y)), (0, loss(net, x, y)))[1]",
    "tf.add_n(hvd.grouped_allreduce([loss(net, x, y), tf.reduce_mean(net(x))], name='parts'))",
]

WANTED = [
    "net.variables",
    "net.variables[:2]",
    "net.variables[::-1]",
    "net.variables[1:]",
    "net.variables[:-1]",
    "net.variables[rank:]",
]

GRADIENTS = [
    """\
with tf.GradientTape() as tape:
    value = {LOSSES}
tape = hvd.DistributedGradientTape(tape{OPTIONS})
gradients = tape.gradient(value, wanted)""",
    """\
with tf.GradientTape(persistent=True) as tape:
    value = {LOSSES}
    other = tf.reduce_mean(net(x))
tape = hvd.DistributedGradientTape(tape{OPTIONS})
gradients = tape.gradient(value, wanted)
more = tape.gradient(other, wanted[:1])
gradients[0] = more[0]""",
    """\
with hvd.DistributedGradientTape(tf.GradientTape(){OPTIONS}) as tape:
    value = {LOSSES}
gradients = tape.gradient(value, wanted)""",
    """\
with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(wanted[:1])
    value = {LOSSES}
gradients = hvd.DistributedGradientTape(tape{OPTIONS}).gradient(value, wanted)""",
    """\
with tf.GradientTape() as tape, tf.GradientTape() as second:
    value = {LOSSES}
    other = tf.reduce_mean(net(x) ** 2)
gradients = hvd.DistributedGradientTape(tape).gradient(value, wanted)
more = hvd.DistributedGradientTape(second{OPTIONS}).gradient(other, wanted)
gradients = [a if b is None else b if a is None else dense(a) + dense(b) for a, b in zip(gradients, more)]""",
    """\
with tf.GradientTape() as outer:
    with tf.GradientTape() as tape:
        value = {LOSSES}
    slopes = hvd.DistributedGradientTape(tape).gradient(value, wanted)
    total = tf.add_n([value] + [0.1 * tf.reduce_sum(dense(g) ** 2) for g in slopes if g is not None])
gradients = hvd.DistributedGradientTape(outer{OPTIONS}).gradient(total, wanted)""",
    """\
with tf.GradientTape() as tape:
    value = 64 * {LOSSES}
tape = hvd.DistributedGradientTape(tape{OPTIONS})
gradients = [scaled(g, 1 / 64) for g in tape.gradient(value, wanted)]""",
    """\
with tf.GradientTape() as tape:
    value = {LOSSES}
tape = hvd.DistributedGradientTape(tape)
tape.register_local_source(net.variables[-1])
gradients = tape.gradient(value, wanted)""",
    """\
with tf.GradientTape() as tape:
    value = {LOSSES}
tape = hvd.DistributedGradientTape(tape{OPTIONS})
named = tape.gradient(value, {one.name: one for one in wanted}, unconnected_gradients='zero')
gradients = [named[one.name] for one in wanted]""",
]

EDITS = statements("""
gradients, _ = tf.clip_by_global_norm(gradients, 0.2)

gradients = [None if g is None else tf.clip_by_norm(g, 0.1) for g in gradients]

gradients = [None if g is None else tf.clip_by_value(g, -0.02, 0.02) for g in gradients]

gradients = [None if g is None else scaled(g, 0.5) for g in gradients]

value = hvd.allreduce(value, name='value')

gradients = [None if g is None else hvd.allreduce(g, name=f'again.{i}') for i, g in enumerate(gradients)]

tf.print('loss', value, output_stream='file:///dev/null')

if rank == 0:
    tf.debugging.assert_all_finite(tf.zeros_like(value), 'not finite')

with tf.control_dependencies([value]):
    note_total.assign(hvd.allreduce(note_total + 1.0, op=hvd.Sum))
""")

UPDATES = statements("""
optimizer.apply_gradients([(g, v) for g, v in zip(gradients, wanted) if g is not None])

optimizer.apply_gradients(zip(gradients, wanted))

for g, v in zip(gradients, wanted):
    if g is not None:
        v.assign_sub(tf.cast(0.1, v.dtype) * dense(g))

for g, v in zip(gradients, wanted):
    if isinstance(g, tf.IndexedSlices):
        v.scatter_sub(g)
    elif g is not None:
        v.assign_sub(g)

everywhere = hvd.allreduce(value)
if everywhere < 1e6:
    for g, v in zip(gradients, wanted):
        if g is not None:
            v.assign_sub(dense(g))
""")

STEP = """\
wanted = {WANTED}
{DECORATORS}
def step(x, y):
    {GRADIENTS}
    {EDITS?}
    {UPDATES}
    return value
"""

PHASES = [
    STEP + "for _ in range(3):\n    value = step(*batch())\n    see(value)",
    STEP + "for i in range(3):\n    value = step(*batch(2 + i))\n    see(value)",
    STEP
    + """\
x, y = batch()
@tf.function
def steps(n):
    for _ in tf.range(n):
        step(x, y)
steps(tf.constant(3))
see()""",
    """\
wanted = net.variables
ours = hvd.DistributedOptimizer(optimizers.SGD(0.1, momentum=0.9){OPTIONS})
{DECORATORS}
def step(x, y):
    with tf.GradientTape() as tape:
        value = {LOSSES}
    gradients = tape.gradient(value, wanted)
    {EDITS?}
    ours.apply_gradients(zip(gradients, wanted))
    return value
for _ in range(3):
    value = step(*batch())
    see(value)""",
    """\
wanted = net.variables
ours = hvd.DistributedOptimizer({OPTIMIZERS}, backward_passes_per_step=2, average_aggregated_gradients=True)
{DECORATORS}
def step(x, y):
    with tf.GradientTape() as tape:
        value = {LOSSES}
    gradients = tape.gradient(value, wanted)
    ours.apply_gradients(zip(gradients, wanted))
for _ in range(4):
    step(*batch())
    see()""",
    """\
wanted = net.variables
sums = [tf.Variable(tf.zeros_like(one)) for one in wanted]
{DECORATORS}
def add(x, y):
    with tf.GradientTape() as tape:
        value = {LOSSES}
    tape = hvd.DistributedGradientTape(tape{OPTIONS})
    for total, g in zip(sums, tape.gradient(value, wanted)):
        if g is not None:
            total.assign_add(dense(g))
for _ in range(2):
    add(*batch())
    add(*batch())
    optimizer.apply_gradients(zip(sums, wanted))
    for total in sums:
        total.assign(tf.zeros_like(total))
    see()""",
    """\
wanted = net.variables
ours = hvd.DistributedOptimizer(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9){OPTIONS})
{DECORATORS}
def step(x, y):
    pairs = ours.compute_gradients(lambda: {LOSSES}, wanted)
    return ours.apply_gradients([(g, v) for g, v in pairs if g is not None])
x, y = batch()
for _ in range(2):
    pairs = ours.compute_gradients(lambda: loss(net, x, y), wanted)
    ours.apply_gradients([(g, v) for g, v in pairs if g is not None])
    see()""",
]

CHANGES = [
    "",
    *statements("""
optimizer = optimizers.Adam(0.01, epsilon=1e-3)

hvd.broadcast_variables(net.variables, root_rank=0)

saved = [one.numpy() for one in net.variables]
for one, value in zip(net.variables, saved):
    one.assign(value)

net = copy.deepcopy(net)
optimizer = optimizers.SGD(0.1)

note('total', hvd.allreduce(tf.constant(float(rank)), op=hvd.Sum, name='total'))

optimizer.learning_rate = 0.02

note('mean', hvd.allreduce(tf.IndexedSlices(tf.ones([1 + rank, 2]), tf.fill([1 + rank], rank), tf.constant([3, 2]))))

if rank == 0:
    tf.function(lambda x: tf.cond(x[0] > 0, lambda: x * 2, lambda: x))(tf.ones(3))

net.dtype = 'float32'

note('objects', hvd.broadcast_object({'rank': rank}, root_rank=size - 1))
"""),
]

END = ["see()"]

REFUSED = {
    "MismatchError": ["chosen()", "net.variables[rank:]"],
    "ranks": ["chosen()", "net.variables[rank:]"],
    "XLA cannot run collectives": ["jit_compile=True"],
}
