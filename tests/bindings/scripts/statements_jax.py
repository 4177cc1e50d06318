"""Templates and statements of scripts for `ringcomm.jax`.

Simple ones are first, because hypothesis shrinks to them.
"""

from __future__ import annotations

from user_statements import statements

SETUP = [
    """\
params = {PARAMETERS}
optimizer = {OPTIMIZERS}
{BEFORE?}
state = optimizer.init(params)"""
]

APART = [
    # A callback in a conditional does not support vmap.
    ("cond(step_now", "jacrev"),
    ("cond(step_now", "jax.vmap(jax.grad"),
    # A single rank would communicate, and wait forever.
    ("if rank == 0 else", "hvd.allreduce(x[:2])"),
    ("if rank == 0 else", "hvd.broadcast_parameters(params, size - 1), x"),
]

PARAMETERS = [
    "mlp()",
    "{'first': mlp(), 'rest': (jnp.ones(()), [jnp.zeros((0, 3))])}",
    "jax.tree.map(lambda p: p.astype('float32'), mlp())",
    "Pair(mlp(), None)",
    "jax.tree.map(lambda p: p.astype('bfloat16') if p.ndim == 1 else p, mlp())",
    "list(mlp().values())",
]

OPTIMIZERS = [
    "hvd.distributed({TRANSFORMATIONS}{OPTIONS})",
    "optax.chain(hvd.distributed(optax.identity(){OPTIONS}), {TRANSFORMATIONS})",
    "optax.chain(optax.clip_by_global_norm(0.2), hvd.distributed({TRANSFORMATIONS}))",
    "hvd.distributed(optax.chain(optax.clip_by_global_norm(0.2), {TRANSFORMATIONS}){OPTIONS})",
    "optax.MultiSteps(hvd.distributed({TRANSFORMATIONS}{OPTIONS}), 2)",
    "hvd.distributed(optax.MultiSteps({TRANSFORMATIONS}, 2){OPTIONS})",
    "hvd.distributed(optax.MultiSteps({TRANSFORMATIONS}, 2).gradient_transformation(){OPTIONS})",
    "hvd.distributed(optax.apply_if_finite({TRANSFORMATIONS}, 2){OPTIONS})",
    "optax.apply_if_finite(hvd.distributed({TRANSFORMATIONS}{OPTIONS}), 2)",
    "hvd.distributed(optax.masked({TRANSFORMATIONS}, lambda p: jax.tree.map(lambda one: one.ndim > 1, p)))",
    "optax.masked(hvd.distributed({TRANSFORMATIONS}), lambda p: jax.tree.map(lambda one: one.ndim > 1, p))",
    "optax.inject_hyperparams(lambda rate: hvd.distributed(optax.sgd(rate){OPTIONS}))(rate=0.1)",
    "hvd.distributed(optax.inject_hyperparams(optax.sgd)(learning_rate=optax.linear_schedule(0.1, 0.01, 4)))",
]

TRANSFORMATIONS = [
    "optax.sgd(0.1)",
    "optax.sgd(0.1, momentum=0.9, nesterov=True)",
    "optax.adam(0.01, eps=1e-3)",
    "optax.adamw(0.01, eps=1e-3, weight_decay=0.1)",
    "optax.rmsprop(0.01, eps=1e-2)",
    "optax.chain(optax.clip(0.02), optax.sgd(0.1))",
    "optax.chain(optax.ema(0.9), optax.sgd(0.1))",
    "optax.lamb(0.01, eps=1e-3)",
    "optax.sgd(optax.exponential_decay(0.1, 2, 0.5))",
]

OPTIONS = [
    "",
    ", op=hvd.Sum",
    ", algorithm='ring'",
    ", name='mine'",
    ", compression=hvd.Compression.fp16",
    ", process_set=hvd.global_process_set",
]

BEFORE = statements("""
params = hvd.broadcast_parameters(jax.tree.map(lambda p: p * (rank + 1), params), root_rank=size - 1)

params = jax.tree.map(lambda p: p * 2, params)

note('all', hvd.allgather(jnp.full((1 + rank, 2), rank)))
""")

PREDICTIONS = [
    "predict(params, x)",
    "jax.checkpoint(predict)(params, x)",
    "jax.vmap(predict, (None, 0))(params, x)",
    "jax.jit(predict)(params, x)",
    "jax.lax.cond(x.sum() > 0, predict, lambda p, x: 2 * predict(p, x), params, x)",
    "jax.lax.map(lambda row: predict(params, row), x)",
    "predict(params, x) + jax.lax.scan(lambda c, row: (c + predict(params, row), None), jnp.zeros(2), x)[0]",
    "jax.lax.fori_loop(0, 3, lambda i, v: 0.5 * v + predict(params, x), jnp.zeros((x.shape[0], 2)))",
    "predict(jax.tree.map(jax.lax.stop_gradient, params), x) * 0.5 + predict(params, x)",
    "predict(params, hvd.allreduce(x[:2]))",
    "predict(hvd.broadcast_parameters(params, size - 1), x)",
]

LOSSES = [
    "jnp.mean(({PREDICTIONS} - y[0]) ** 2)",
    "hvd.allreduce(jnp.mean(({PREDICTIONS} - y[0]) ** 2))",
    "hvd.allreduce(jnp.mean(({PREDICTIONS} - y[0]) ** 2), op=hvd.Sum)",
    "jax.checkpoint(lambda v: hvd.allreduce(jnp.sum(v ** 2)))({PREDICTIONS} * 0.1)",
    "jnp.mean(({PREDICTIONS} - y[0]) ** 2) * (rank + 1)",
    "sum(hvd.grouped_allreduce([jnp.mean({PREDICTIONS} ** 2), jnp.sum(x ** 2)], name='parts'))",
    "jnp.mean(jax.vmap(hvd.allreduce)(predict(params, x)[:2]) ** 2)",
    "jax.lax.cond(step_now > 0, lambda v: hvd.allreduce(v), lambda v: v * 2, jnp.mean({PREDICTIONS} ** 2))",
    "jax.lax.fori_loop(0, 2, lambda i, v: hvd.allreduce(v) * 0.5, jnp.mean({PREDICTIONS} ** 2))",
    "jax.lax.scan(lambda v, row: (v + hvd.allreduce(row.sum()), None), 0., predict(params, x)[:3] ** 2)[0]",
    "custom(jnp.mean({PREDICTIONS} ** 2))",
    "jnp.mean(({PREDICTIONS} - y[0]) ** 2) if rank == 0 else 0.5 * jnp.sum(jnp.abs(predict(params, x)))",
]

GRADIENTS = statements("""
value, gradients = jax.value_and_grad(loss)(params, x, y, i)

value, gradients = 0., jax.grad(loss)(params, x, y, i)

value, back = jax.vjp(lambda p: loss(p, x, y, i), params)
(gradients,) = back(jnp.ones_like(value))

(value, _), gradients = jax.value_and_grad(lambda p: (loss(p, x, y, i), x.sum()), has_aux=True)(params)

value, gradients = jax.jit(jax.value_and_grad(loss))(params, x, y, i)

value, gradients = jax.value_and_grad(jax.checkpoint(loss))(params, x, y, i)

zeros = jax.tree.map(jnp.zeros_like, params)
def add(total, part):
    return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *part, i)), None
gradients, _ = jax.lax.scan(add, zeros, (x[None], y[None]))
value = x.sum()

value, gradients = loss(params, x, y, i), jax.jacrev(loss)(params, x, y, i)

value = loss(params, x, y, i)
gradients = jax.grad(lambda p: loss(p, x, y, i) + 0.01 * sum((g ** 2).sum() for g in
                     jax.tree.leaves(jax.grad(loss)(p, x, y, i))))(params)

each = jax.vmap(jax.grad(loss), (None, 0, 0, None))(params, x[:2, None], y[:2, None], i)
gradients = jax.tree.map(lambda g: g.mean(0), each)
value = hvd.allreduce(x.mean())
""")

EDITS = statements("""
gradients = jax.tree.map(lambda g: jnp.clip(g, -0.02, 0.02), gradients)

gradients = jax.tree.map(lambda g: g * (rank + 1), gradients)

norm = optax.global_norm(gradients)
gradients = jax.tree.map(lambda g: g / (1 + norm).astype(g.dtype), gradients)

gradients = hvd.allreduce_gradients(gradients, name='twice')

gradients = jax.tree.map(lambda g: jnp.where(jnp.logical_and(rank == 0, i == 1), jnp.nan, g), gradients)

value = hvd.allreduce(value)

gradients = jax.tree.map(lambda g: g.astype('float32'), gradients)

print('rank', rank, file=io.StringIO())

if rank == 0:
    jax.debug.callback(lambda v: None, value)
""")

UPDATES = statements("""
updates, state = optimizer.update(gradients, state, params)
params = optax.apply_updates(params, updates)

updates, state = optimizer.update(gradients, state, params)
params = jax.tree.map(lambda p, u: p + u.astype(p.dtype), params, updates)

now = state
updates, state = optimizer.update(gradients, now, params)
params = jax.lax.cond(i >= 0, lambda: optax.apply_updates(params, updates), lambda: params)

params, state = jax.lax.cond(hvd.allreduce(value) < 1e6, lambda p, s, g: apply(optimizer, p, s, g),
                             lambda p, s, g: (p, s), params, state, gradients)
""")

DECORATORS = [
    "@jax.jit",
    "",
    "@partial(jax.jit, donate_argnums=(0, 1))",
    "@partial(jax.jit, static_argnames='i')",
    "@partial(jax.jit, inline=True)",
]

STEP = """\
def loss(params, x, y, step_now=0):
    return {LOSSES}
{DECORATORS}
def step(params, state, x, y, i=0):
    {GRADIENTS}
    {EDITS?}
    {UPDATES}
    return params, state, value
"""

PHASES = [
    STEP
    + "for i in range(3):\n    params, state, value = step(params, state, *batch(), i)\n    see(params, state, value)",
    STEP
    + "for i in range(2):\n    params, state, value = step(params, state, *batch(2 + i), i=i)\n    see(params, state)",
    STEP
    + """\
x, y = batch()
@jax.jit
def steps(params, state):
    def one(i, both):
        return step(*both, x, y, 0)[:2]
    return jax.lax.fori_loop(0, 3, one, (params, state))
params, state = steps(params, state)
see(params, state)""",
    STEP
    + """\
x, y = batch()
@jax.jit
def steps(params, state):
    def one(both, _):
        *both, value = step(*both, x, y, 0)
        return tuple(both), value
    return jax.lax.scan(one, (params, state), None, length=2)
(params, state), values = steps(params, state)
see(params, state, values)""",
    STEP
    + """\
x, y = batch()
mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), 'one')
spec = jax.sharding.PartitionSpec()
{DECORATORS}
def sharded(params, state):
    one = lambda p, s: step(p, s, x, y, 0)[:2]
    return jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(params, state)
params, state = sharded(params, state)
see(params, state)""",
    STEP
    + """\
compiled = jax.jit(lambda p, s, x, y: step(p, s, x, y, 0)).lower(params, state, *batch()).compile()
for _ in range(2):
    params, state, value = compiled(params, state, *batch())
    see(params, state)""",
]

CHANGES = [
    "",
    *statements("""
params = jax.tree.map(lambda p: p.astype('float32'), params)
state = optimizer.init(params)

params, state = hvd.broadcast_parameters((params, state), root_rank=0)

params, state = jax.tree.map(jnp.asarray, pickle.loads(pickle.dumps(jax.tree.map(np.asarray, (params, state)))))

optimizer = hvd.distributed(optax.adam(0.01, eps=1e-3))
state = optimizer.init(params)

jax.clear_caches()

note('total', hvd.allreduce(jnp.float32(rank), op=hvd.Sum))

if rank == 0:
    jax.jit(lambda x: x * 2)(jnp.ones(3))

note('objects', hvd.broadcast_object({'rank': rank}, root_rank=size - 1))
"""),
]

END = ["see(params, state)"]

REFUSED: dict[str, list[str]] = {}
