"""Callbacks that record the progress of ``fit`` in an elastic state, and commit the state."""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.callbacks import DistributedCallback


class _StateCallback(DistributedCallback):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state


class CommitStateCallback(_StateCallback):
    """A callback that commits a state every few batches and at the end of each epoch.

    Put it last, after all callbacks that change the state.

    Parameters
    ----------
    state : KerasState
        The state to commit.
    batches_per_commit : int
        Number of batches between commits; each ``fit`` counts from its first batch.

    Raises
    ------
    HostsUpdatedInterrupt, RingcommError
        Errors of ``state.commit``, which end ``fit``.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> state = hvd.elastic.KerasState(model, epoch=0)
    >>> commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=10)
    >>> history = model.fit(np.ones((8, 1)), np.ones((8, 1)), verbose=0, callbacks=[commit])
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        self.batches_per_commit = self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.commit()

    def commit(self) -> None:
        self.state.commit()


class UpdateBatchStateCallback(_StateCallback):
    """A callback that counts the finished batches of the epoch in ``state.batch``.

    The count is 0 at the end of an epoch. If ``fit`` begins with finished batches, its first epoch
    is shorter by their number, but has at least one batch. This needs a known epoch length
    (``steps_per_epoch``, or data with a length). The program selects the data of the remaining
    batches. Put this callback before callbacks that stop the training at the end of an epoch.

    Parameters
    ----------
    state : KerasState
        A state with the attribute ``batch``.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> state = hvd.elastic.KerasState(model, batch=0)
    >>> count = hvd.elastic.UpdateBatchStateCallback(state)
    >>> history = model.fit(np.ones((8, 1)), np.ones((8, 1)), verbose=0, callbacks=[count])
    >>> state.batch
    0
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._batches_before, self._stopped = 0, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._batches_before, self._stopped = self.state.batch, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = done = self._batches_before + batch + 1
        steps = (self.params or {}).get("steps")
        if self._batches_before and steps and done >= steps:
            self._stopped = self.model.stop_training = True  # Keras has no other means to end an epoch early

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0
        if self._stopped:
            self.model.stop_training = False


class UpdateEpochStateCallback(_StateCallback):
    """A callback that counts the finished epochs in ``state.epoch``, across restarts.

    ``fit`` may count from 0 or from this number (``initial_epoch``).

    Parameters
    ----------
    state : KerasState
        A state with the attribute ``epoch``.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> state = hvd.elastic.KerasState(model, epoch=0)
    >>> count, x = hvd.elastic.UpdateEpochStateCallback(state), np.ones((8, 1))
    >>> history = model.fit(x, x, epochs=2, verbose=0, callbacks=[count])
    >>> state.epoch
    2
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._first_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._first_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._first_epoch is None:
            self._first_epoch = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = (self._first_epoch or 0) + epoch + 1
