"""Regression tests: minimized scripts of TensorFlow, Keras and JAX that once failed."""

SCRIPTS = {
    "jax": [
        """
params = mlp()
compiled = jax.jit(lambda p, x: hvd.allreduce(jnp.mean(predict(p, x)))).lower(params, batch()[0]).compile()
for _ in range(3):
    see(compiled(params, batch()[0]))
"""
    ],
}
