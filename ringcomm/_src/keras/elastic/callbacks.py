"""Callbacks that note in a state how far ``fit`` has come, and commit it."""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.callbacks import Preparing


class _OfState(Preparing):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state


class CommitStateCallback(_OfState):
    """Commits at the end of every so many batches, and of each epoch. The last of these callbacks, and after all others
    that change what is kept.

    Args:
        state: what is committed.
        batches_per_commit: how many; of each ``fit`` the first is counted as the first.

    Raises:
        HostsUpdatedInterrupt, RingcommError: out of ``fit``, as ``state.commit`` raises them.
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
    """Keeps in ``state.batch`` how many batches of the epoch are done: 0 at the end of an epoch.

    Where ``fit`` begins with some done, its first epoch is so many batches shorter, if their number is known
    (``steps_per_epoch``, or data with a length); one it always has. Which batches these are is the data's matter.
    Before callbacks that stop the training at the end of an epoch.
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
            self._stopped = self.model.stop_training = True  # Keras has no other way out of an epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0
        if self._stopped:
            self.model.stop_training = False


class UpdateEpochStateCallback(_OfState):
    """Keeps in ``state.epoch`` how many epochs are done, on all ranks that there have been; ``fit`` may count from 0 or
    from there (``initial_epoch``)."""

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
