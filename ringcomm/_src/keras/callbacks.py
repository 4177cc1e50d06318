"""Callbacks for ``model.fit``, exported by `ringcomm.keras.callbacks`.

All ranks use identical lists of callbacks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ringcomm._src.base.ops import Average
from ringcomm._src.keras import functions
from ringcomm._src.keras.backends import sync_jax_state
from ringcomm._src.keras.optimizer import is_distributed
from ringcomm._src.keras.relaxed import (  # noqa: F401 (part of hvd.callbacks too)
    ElasticAveragingCallback,
    GossipCallback,
    OuterStepCallback,
    ParameterStoreCallback,
    PeriodicAveragingCallback,
)
from ringcomm._src.named import collectives, runtime
from ringcomm._src.named.process_sets import ProcessSet, global_process_set


def prepare(model: Any) -> None:
    """Disables XLA in a compiled model, because XLA has no kernel for the TensorFlow op.

    Raises ValueError if the user enabled XLA explicitly.
    """
    optimizer = getattr(model, "optimizer", None)
    if keras.backend.backend() != "tensorflow" or not model.jit_compile or not is_distributed(optimizer):
        return
    why = "XLA cannot run collectives in TensorFlow's graphs. Pass jit_compile=False to model.compile()"
    if not model._resolve_auto_jit_compile():  # the value that "auto" yields, so the user set True
        raise ValueError(f"jit_compile=True is not supported: {why}")
    warnings.warn(f"jit_compile is turned off: {why}", stacklevel=3)
    model.jit_compile = False


class DistributedCallback(keras.callbacks.Callback):
    """Base class of callbacks that prepare a model to run distributed."""

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        prepare(model)


class BroadcastGlobalVariablesCallback(DistributedCallback):
    """A callback that broadcasts the root's weights and optimizer state before training.

    Parameters
    ----------
    root_rank : int
        Global rank that provides the values.
    device : str
        Accepted because Horovod has it; not used.
    local_variables : Sequence[keras.Variable] | None
        Variables that are not broadcast: every rank keeps its own values.
    process_set : ProcessSet
        The ranks that take part.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> model.set_weights([np.full((1, 1), 1.0 + hvd.rank())])
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    >>> callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0)]
    >>> history = model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=callbacks)
    >>> model.get_weights()[0].tolist()
    [[1.0]]
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: Any = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        self.root_rank, self.process_set, self.broadcast_done = root_rank, process_set, False
        self._local = {id(variable) for variable in local_variables or ()}

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts now if the model is built, else after the first batch."""
        self.broadcast_done = False
        if self.model.built and self.model.optimizer is not None:
            if not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        self.broadcast_done = True
        optimizer = self.model.optimizer
        # Excludes states of random generators: dropout and augmentation must differ between ranks.
        variables = [*self.model.weights, *(optimizer.variables if optimizer is not None else ())]
        unique = {id(variable): variable for variable in variables if id(variable) not in self._local}
        functions.broadcast_variables(list(unique.values()), self.root_rank, self.process_set)


class MetricAverageCallback(DistributedCallback):
    """A callback that averages scalar metrics over all ranks at the end of each epoch.

    Put it before callbacks that use metrics: checkpoints, early stopping, schedules.

    Parameters
    ----------
    device : str
        Accepted because Horovod has it; not used.
    process_set : ProcessSet
        The ranks that take part.

    Examples
    --------
    >>> callback, logs = hvd.callbacks.MetricAverageCallback(), {"loss": 1.0 * hvd.rank()}
    >>> callback.on_epoch_end(0, logs)
    >>> logs
    {'loss': 0.5}
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs:
            return
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0 and np.isreal(value))
        values = np.array([float(logs[name]) for name in names])
        means = collectives.allreduce(values, name="metrics", op=Average, process_set=self.process_set)
        logs.update(zip(names, (float(mean) for mean in means), strict=True))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """A callback that multiplies the learning rate by a factor.

    Parameters
    ----------
    initial_lr : float
        The learning rate that the factor multiplies.
    multiplier : float | Callable[[float], float]
        The factor, or a function of the epoch (fractional, unless ``staircase``).
    start_epoch, end_epoch : int
        First epoch with the factor, and first epoch after it; None: to the end of training.
    staircase : bool
        Change the learning rate at the beginning of an epoch only.
    momentum_correction : bool
        If the learning rate is part of an optimizer's velocity (SGD with momentum), scale the
        velocities once by the same factor. Source: Goyal et al., arXiv:1706.02677, remark 2.
    steps_per_epoch : int | None
        Number of steps in an epoch; None: the number that ``fit`` uses.

    Raises
    ------
    ValueError
        ``initial_lr`` is None; in ``fit``: the number of steps in an epoch is not known.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    >>> halve = hvd.callbacks.LearningRateScheduleCallback(initial_lr=1.0, multiplier=0.5)
    >>> model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=[halve]).history["lr"]
    [0.5]
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        constant = not callable(multiplier)
        self.staircase, self.momentum_correction = staircase or constant, momentum_correction
        self.multiplier: Callable[[float], float] = (lambda epoch: multiplier) if constant else multiplier  # type: ignore[assignment, return-value]
        self.steps_per_epoch, self.current_epoch = steps_per_epoch, 0

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    "the number of steps per epoch is not known: pass steps_per_epoch to "
                    f"{type(self).__name__} or to model.fit()"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase:
            if batch == 0:
                self._set(epoch)
        else:
            self._set(epoch + batch / float(self.steps_per_epoch or 1))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        sync_jax_state(self.model)
        optimizer = self.model.optimizer
        old, new = float(keras.ops.convert_to_numpy(optimizer.learning_rate)), self.initial_lr * self.multiplier(epoch)
        if new == old:
            return
        optimizer.learning_rate = new
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        velocities = inner.momentums if isinstance(inner, keras.optimizers.SGD) and inner.built else None
        if self.momentum_correction and velocities and old:
            for velocity in velocities:
                if velocity is not None:
                    velocity.assign(velocity * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """A callback that raises the learning rate gradually in the first epochs.

    It changes the rate with every batch, from ``initial_lr / size`` to ``initial_lr``. Source:
    Goyal et al., arXiv:1706.02677.

    Parameters
    ----------
    initial_lr : float
        The learning rate at the end of the warmup, usually one rank's rate times ``hvd.size()``.
    warmup_epochs : float
        Number of epochs.
    momentum_correction : bool
        See :class:`LearningRateScheduleCallback`.
    steps_per_epoch : int | None
        Number of steps in an epoch; None: the number that ``fit`` uses.
    verbose : int
        1: rank 0 prints a line when the warmup ends.

    Raises
    ------
    ValueError
        ``initial_lr`` is None; in ``fit``: the number of steps in an epoch is not known.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    >>> warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=1.0, warmup_epochs=2)
    >>> x = np.ones((2, 1))                            # one batch for each epoch
    >>> model.fit(x, x, epochs=2, verbose=0, callbacks=[warmup]).history["lr"]
    [0.75, 1.0]
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps_per_epoch or 1)  # so that the warmup ends with the last batch
            size = runtime.size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, int(warmup_epochs), False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose and runtime.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self.initial_lr}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """A ``keras.callbacks.ModelCheckpoint`` with ``save_best_only`` that saves on rank 0 only.

    Put it after :class:`MetricAverageCallback`, so that it uses the mean of the ranks.

    Parameters
    ----------
    filepath : str
        Path of the saved model; may be set later.
    monitor, verbose, mode, save_freq, options
        Arguments of ``keras.callbacks.ModelCheckpoint``.

    Examples
    --------
    >>> import os, tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> path = os.path.join(tempfile.mkdtemp(), "best.keras")
    >>> best = hvd.callbacks.BestModelCheckpoint(path, monitor="loss")
    >>> history = model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=[best])
    >>> os.path.exists(path) == (hvd.rank() == 0)
    True
    """

    def __init__(
        self,
        filepath: str = "best_model.keras",
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        **options: Any,
    ) -> None:
        super().__init__(filepath, monitor, verbose, save_best_only=True, mode=mode, save_freq=save_freq, **options)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not runtime.is_initialized() or runtime.rank() == 0:
            super().on_epoch_end(epoch, logs)
