"""Pickling of JAX's arrays in commits of elastic states, which copies memory only once.

Importing this module registers it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringcomm._src.elastic.member.packing import array_from_parts, array_to_parts, register


def _reduce(array: jax.Array) -> Any:
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return _rebuild_keys, (jax.random.key_data(array), jax.random.key_impl(array))
    if isinstance(array, jax.core.Tracer) or array.weak_type:  # mostly scalars; JAX's pickling keeps the weak type
        return array.__reduce__()
    return _rebuild, array_to_parts(np.asarray(array))


def _rebuild(memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> jax.Array:
    """Rebuilds an array on the current default device."""
    return jnp.asarray(array_from_parts(memory, dtype, shape))


def _rebuild_keys(data: jax.Array, implementation: Any) -> jax.Array:
    return jax.random.wrap_key_data(data, impl=implementation)


register(jax.Array, _reduce)
