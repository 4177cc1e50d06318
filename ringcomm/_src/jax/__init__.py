"""The JAX binding; `ringcomm.jax` holds its public names."""
