"""What differs between Keras' backends: modules of their packages, what compressors there are, where values are."""

from __future__ import annotations

import importlib
from typing import Any

import keras

from ringcomm._src.compression import compression
from ringcomm._src.training import gradient_lists


class Compression(compression.Compression):
    """The built-in compressors: ``none``, ``fp16``, ``bf16``; and the core's formats, of which optimizers keep what
    they leave out (:func:`ringcomm.keras.compression_state_dict`). A backend's own work too: ``hvd.Compression`` of
    ``ringcomm.tensorflow`` or ``ringcomm.torch``."""


BACKENDS = ("tensorflow", "torch", "jax")  # of which ringcomm has the package of that name


def module_of_backend(name: str) -> Any:
    """This module of the package for what Keras runs on. Raises ImportError for a backend that has none."""
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise ImportError(f"ringcomm.keras works on Keras' {', '.join(BACKENDS)} backends, not on {backend}")
    return importlib.import_module(f"ringcomm._src.{backend}.{name}")


def reduction_class() -> type[gradient_lists.GradientReduction]:
    """Of the backend that Keras runs on."""
    made: type[gradient_lists.GradientReduction] = module_of_backend("reduction").GradientReduction
    return made


def bring_up_to_date(model: Any) -> None:
    """The variables, in the middle of ``fit``, to be read or assigned to: JAX's trainer holds their values itself."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
