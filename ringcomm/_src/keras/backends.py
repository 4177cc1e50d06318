"""The differences between Keras' backends: packages in ringcomm, and variables during ``fit``.

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

    Optimizers store the residuals of the core's formats
    (:func:`ringcomm.keras.compression_state_dict`). The backend's compressors work too:
    ``hvd.Compression`` of ``ringcomm.tensorflow`` or ``ringcomm.torch``.

    Examples
    --------
    >>> hvd.allreduce(np.ones(2), compression=hvd.Compression.fp16, op=hvd.Sum).tolist()
    [2.0, 2.0]
    """


BACKENDS = ("tensorflow", "torch", "jax")  # each is also the name of a package of ringcomm


def module_of_backend(name: str) -> Any:
    """Imports a module from the package for the current backend.

    Raises ImportError for an unknown backend.
    """
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise ImportError(
            f"ringcomm.keras supports Keras' backends {', '.join(BACKENDS)}, not {backend}: set KERAS_BACKEND"
        )
    return importlib.import_module(f"ringcomm._src.{backend}.{name}")


def reduction_class() -> type[gradient_lists.GradientReduction]:
    """Returns the class of the current backend that reduces gradients."""
    cls: type[gradient_lists.GradientReduction] = module_of_backend("reduction").GradientReduction
    return cls


def sync_jax_state(model: Any) -> None:
    """Synchronizes the variables before they are read or assigned during ``fit``.

    With JAX, the trainer holds the current values outside of the variables.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
