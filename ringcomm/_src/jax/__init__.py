"""The JAX binding. Public names are in ringcomm.jax."""
