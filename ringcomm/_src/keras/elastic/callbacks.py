"""Callbacks that record the progress of ``fit`` in an elastic state, and commit the state."""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.callbacks import Preparing


class _OfState(Preparing):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state


class CommitStateCallback(_OfState):
    """A callback that commits after every `batches_per_commit` batches and at the end of each epoch.

    Put it last, after all callbacks that change the state.

    Args:
        state: the state to commit.
        batches_per_commit: number of batches between commits; each ``fit`` counts from its first batch.

    Raises:
        HostsUpdatedInterrupt, RingcommError: errors of ``state.commit``, which end ``fit``.
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


class UpdateBatchStateCallback(_OfState):
    """A callback that counts in ``state.batch`` the finished batches of the epoch; 0 at the end of an epoch.

    If ``fit`` begins with finished batches, its first epoch is shorter by their number, but has at least one batch.
    This needs a known epoch length (``steps_per_epoch``, or data with a length). The data decides which batches are
    left. Put this callback before callbacks that stop the training at the end of an epoch.
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._done_before, self._stopped = 0, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._done_before, self._stopped = self.state.batch, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = done = self._done_before + batch + 1
        steps = (self.params or {}).get("steps")
        if self._done_before and steps and done >= steps:
            self._stopped = self.model.stop_training = True  # Keras has no other means to end an epoch early

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0
        if self._stopped:
            self.model.stop_training = False


class UpdateEpochStateCallback(_OfState):
    """A callback that counts in ``state.epoch`` the finished epochs, across restarts.

    ``fit`` may count from 0 or from this number (``initial_epoch``).
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._counted_from: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._counted_from = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._counted_from is None:
            self._counted_from = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = (self._counted_from or 0) + epoch + 1
