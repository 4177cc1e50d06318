"""A base for loaders of batches, and a mixin that reads batches ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]


class BaseDataLoader:
    """Give ``__len__`` and ``_iterate``; what iterates over the loader gets each batch through ``_process_batch``."""

    def __len__(self) -> int:
        """How many batches there are."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """The batches of one epoch."""
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """What becomes of a batch, on the thread that asks for it."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        return map(self._process_batch, self._iterate())


class _End(NamedTuple):
    """Of an epoch's batches: all of them, or what failed."""

    error: BaseException | None


class AsyncDataLoaderMixin:
    """Reads batches ahead in a thread. It goes before the loader: ``class Ahead(AsyncDataLoaderMixin, MyLoader)``.

    Each iteration is one epoch, read by a thread of its own, which ends with it; what the loader raises is raised where
    the batch is asked for.

    Args:
        async_loader_queue_size: how many batches may wait; 0: none, and no thread.
        debug_data_loader: accepted because Horovod has it.
        args, kwargs: the loader's.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size, self.debug_data_loader = async_loader_queue_size, debug_data_loader
        self._closings: list[threading.Event] = []
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends iterations that are under way: they give no further batch. May be called more than once."""
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
                except queue.Empty:  # it may have been closed meanwhile
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
    """False once nobody asks for more."""
    while not closing.is_set():
        try:
            ahead.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
