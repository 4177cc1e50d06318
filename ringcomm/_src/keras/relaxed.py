"""Callbacks that exchange weights between ranks periodically, instead of gradients in every step.

They run the methods of `ringcomm._src.decentralized` on a Keras model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ringcomm._src.decentralized import updates
from ringcomm._src.decentralized.averager import ElasticAverager, Exchanger, GossipAverager, OuterStep, PeriodicAverager
from ringcomm._src.decentralized.parameter_store import ParameterStore
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.keras.backends import sync_jax_state


class _Variables(Replica[Any]):
    """The replica of a Keras model: its variables, on any backend."""

    @staticmethod
    def count(item: Any) -> int:
        return int(np.prod(item.shape))

    @staticmethod
    def is_double(item: Any) -> bool:
        return str(item.dtype) == "float64"

    def copy_out(self, items: Sequence[Any], parts: Sequence[Flat]) -> None:
        for item, part in zip(items, parts, strict=True):
            part[:] = np.asarray(keras.ops.convert_to_numpy(item)).reshape(-1)

    def copy_in(self, items: Sequence[Any], parts: Sequence[Flat]) -> None:
        for item, part in zip(items, parts, strict=True):
            item.assign(part.reshape(item.shape))


def _replica(weights: Sequence[Any], statistics: Sequence[Any], fragments: int = 1) -> _Variables:
    return _Variables(weights, statistics, fragments)


class _ExchangeCallback(keras.callbacks.Callback):
    """Base class of callbacks that run a method of exchange after each batch.

    Weights are the trainable variables. Other floating-point variables (statistics of BatchNorm)
    are averaged. Compile the model with an optimizer that is not distributed. The number of batches
    in ``fit`` may differ between ranks; when it ends, all ranks have the method's model.
    """

    _method: type[Exchanger]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self.exchange: Exchanger | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        sync_jax_state(self.model)
        if self.exchange is None:  # the model is built by now
            trained = list(self.model.trainable_variables)
            others = [variable for variable in self.model.non_trainable_variables if "float" in str(variable.dtype)]
            method = type(self._method.__name__, (self._method,), {"_replica": staticmethod(_replica)})
            self.exchange = method(trained, statistics=others, **self._options)
        self.exchange.step()

    def on_train_end(self, logs: Any = None) -> None:
        sync_jax_state(self.model)
        if self.exchange is not None:
            self.exchange.finish()
            self.exchange = None


class PeriodicAveragingCallback(_ExchangeCallback):
    """Local SGD: ranks periodically replace their weights by the mean over all ranks.

    Each rank makes the first batch's step locally; then all ranks start from the first rank's
    weights.

    Parameters
    ----------
    options : Any
        Keyword arguments of :class:`ringcomm.PeriodicAverager`, which names the source.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    >>> x, callback = np.ones((8, 1)), hvd.callbacks.PeriodicAveragingCallback(every=2)
    >>> history = model.fit(x, x * hvd.rank(), batch_size=2, verbose=0, callbacks=[callback])
    >>> first, second = hvd.allgather_object(model.get_weights()[0].item())
    >>> first == second                                # fit ends with equal weights on all ranks
    True
    """

    _method = PeriodicAverager


class OuterStepCallback(_ExchangeCallback):
    """DiLoCo and SlowMo: an outer optimizer steps on the mean of the ranks' changes of the weights.

    Parameters
    ----------
    options : Any
        Keyword arguments of :class:`ringcomm.OuterStep`, which names the sources.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    >>> x, callback = np.ones((8, 1)), hvd.callbacks.OuterStepCallback(every=2)
    >>> history = model.fit(x, x * hvd.rank(), batch_size=2, verbose=0, callbacks=[callback])
    >>> first, second = hvd.allgather_object(model.get_weights()[0].item())
    >>> first == second                                # fit ends with equal weights on all ranks
    True
    """

    _method = OuterStep


class ElasticAveragingCallback(_ExchangeCallback):
    """Synchronous EASGD: pulls weights and a centre towards each other.

    Parameters
    ----------
    options : Any
        Keyword arguments of :class:`ringcomm.ElasticAverager`, which names the source.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    >>> x, callback = np.ones((8, 1)), hvd.callbacks.ElasticAveragingCallback(every=2)
    >>> history = model.fit(x, x * hvd.rank(), batch_size=2, verbose=0, callbacks=[callback])
    >>> first, second = hvd.allgather_object(model.get_weights()[0].item())
    >>> first == second                                # fit ends with equal weights on all ranks
    True
    """

    _method = ElasticAverager


class GossipCallback(_ExchangeCallback):
    """Gossip: ranks average with their neighbours in a graph after each batch.

    Parameters
    ----------
    options : Any
        Keyword arguments of :class:`ringcomm.GossipAverager`, which names the sources.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    >>> x, callback = np.ones((8, 1)), hvd.callbacks.GossipCallback()
    >>> history = model.fit(x, x * hvd.rank(), batch_size=2, verbose=0, callbacks=[callback])
    >>> first, second = hvd.allgather_object(model.get_weights()[0].item())
    >>> first == second                                # fit ends with equal weights on all ranks
    True
    """

    _method = GossipAverager


class ParameterStoreCallback(keras.callbacks.Callback):
    """A parameter server: adds each batch's changes to shared weights, which the model then loads.

    The changes are those of the model's own optimizer; compile the model with an optimizer that is
    not distributed. All ranks of a host share the weights.

    Parameters
    ----------
    options : Any
        Keyword arguments of :class:`ringcomm.ParameterStore` (``consistency``, ``servers``,
        ``every``, ``on_loss``, ``process_set``).

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    >>> x, callback = np.ones((8, 1)), hvd.callbacks.ParameterStoreCallback()
    >>> history = model.fit(x, x * hvd.rank(), batch_size=2, verbose=0, callbacks=[callback])
    >>> first, second = hvd.allgather_object(model.get_weights()[0].item())
    >>> first == second                                # fit ends with equal weights on all ranks
    True
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self.store: ParameterStore | None = None
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        sync_jax_state(self.model)
        variables = self.model.trainable_variables
        arrays = [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]
        if self.store is None:  # the model is built by now
            self._arrays = {str(index): array.copy() for index, array in enumerate(arrays)}
            self.store = ParameterStore(self._arrays, updates.SGD(1.0), **self._options)
        else:
            changes = {
                key: previous - array for (key, previous), array in zip(self._arrays.items(), arrays, strict=True)
            }
            self.store.push_pull(changes)
        self._assign_weights()

    def on_train_end(self, logs: Any = None) -> None:
        if self.store is not None:
            sync_jax_state(self.model)
            self.store.finish()
            self._assign_weights()
            self.store = None

    def _assign_weights(self) -> None:
        for variable, value in zip(self.model.trainable_variables, self._arrays.values(), strict=True):
            variable.assign(value)
