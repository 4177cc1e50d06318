"""Data loaders with Horovod's interface: a base class, and a mixin that reads batches ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]


class BaseDataLoader:
    """Base class of data loaders. Subclasses define ``__len__`` and ``_iterate``.

    Iterating over the loader gives each batch of ``_iterate`` after ``_process_batch``.

    Examples
    --------
    >>> from ringcomm.data import BaseDataLoader
    >>> class Squares(BaseDataLoader):
    ...     def __len__(self):
    ...         return 3
    ...     def _iterate(self):
    ...         return iter([0, 1, 4])
    >>> list(Squares())
    [0, 1, 4]
    """

    def __len__(self) -> int:
        """Returns the number of batches."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """Yields the batches of one epoch."""
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """Returns the batch for the program. Runs on the thread that iterates over the loader."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        return map(self._process_batch, self._iterate())


class _End(NamedTuple):
    """The end of an epoch's batches: `error` is None, or the exception that ended it."""

    error: BaseException | None


class AsyncDataLoaderMixin:
    """Reads batches ahead in a thread. List it before the loader's class in the base classes.

    Each iteration is one epoch, read by a thread that ends with the epoch. An exception of the
    loader is raised in the iteration that requests the batch.

    Parameters
    ----------
    async_loader_queue_size : int
        Maximum number of batches in the queue; 0: no queue and no thread.
    debug_data_loader : bool
        Accepted because Horovod has it.
    args, kwargs
        Arguments of the loader's class.

    Examples
    --------
    >>> from ringcomm.data import AsyncDataLoaderMixin, BaseDataLoader
    >>> class Numbers(BaseDataLoader):
    ...     def __len__(self):
    ...         return 4
    ...     def _iterate(self):
    ...         return iter(range(4))
    >>> class NumbersAhead(AsyncDataLoaderMixin, Numbers):
    ...     pass
    >>> list(NumbersAhead(async_loader_queue_size=2))
    [0, 1, 2, 3]
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size, self.debug_data_loader = async_loader_queue_size, debug_data_loader
        self._closings: list[threading.Event] = []
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the iterations in progress, which give no further batch. Further calls do nothing."""
        for closing in self._closings:
            closing.set()

    def __iter__(self) -> Iterator[Any]:
        loader: Any = self
        if self.async_loader_queue_size <= 0:
            yield from map(loader._process_batch, loader._iterate())
            return
        ahead: queue.Queue[Any] = queue.Queue(self.async_loader_queue_size)
        closing = threading.Event()
        self._closings.append(closing)
        thread = threading.Thread(target=_read, args=(loader, ahead, closing), daemon=True, name="ringcomm-data")
        thread.start()
        try:
            while not closing.is_set():
                try:
                    item = ahead.get(timeout=0.1)
                except queue.Empty:  # the loop condition checks whether the loader was closed
                    continue
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    return
                yield loader._process_batch(item)
        finally:
            closing.set()
            self._closings.remove(closing)
            thread.join()


def _read(loader: Any, ahead: queue.Queue[Any], closing: threading.Event) -> None:
    end = _End(None)
    try:
        for batch in loader._iterate():
            if not _put(ahead, batch, closing):
                return
    except BaseException as error:
        end = _End(error)
    _put(ahead, end, closing)


def _put(ahead: queue.Queue[Any], item: Any, closing: threading.Event) -> bool:
    """Puts an item into the queue. Returns False if the iteration or the loader ended first."""
    while not closing.is_set():
        try:
            ahead.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
