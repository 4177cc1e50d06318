"""The differences between Keras' backends: their packages in ringcomm, and access to variables during ``fit``.

The other modules of this binding work on all backends through these functions.
"""

from __future__ import annotations

import importlib
from typing import Any

import keras

from ringcomm._src.compression import compression
from ringcomm._src.training import gradient_lists


class Compression(compression.Compression):
    """The built-in compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Optimizers keep the residuals of the core's formats (:func:`ringcomm.keras.compression_state_dict`). The backend's
    compressors work too: ``hvd.Compression`` of ``ringcomm.tensorflow`` or ``ringcomm.torch``.
    """


BACKENDS = ("tensorflow", "torch", "jax")  # each is also the name of a package of ringcomm


def module_of_backend(name: str) -> Any:
    """Imports a module by name from the package for the current backend. Raises ImportError for an unknown backend."""
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise ImportError(f"ringcomm.keras works on Keras' {', '.join(BACKENDS)} backends, not on {backend}")
    return importlib.import_module(f"ringcomm._src.{backend}.{name}")


def reduction_class() -> type[gradient_lists.GradientReduction]:
    """Returns the class of the current backend that reduces gradients."""
    made: type[gradient_lists.GradientReduction] = module_of_backend("reduction").GradientReduction
    return made


def bring_up_to_date(model: Any) -> None:
    """Synchronizes the variables during ``fit``, before reads or assignments: JAX's trainer keeps values itself."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
