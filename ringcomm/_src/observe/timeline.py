"""Writes the events of this process as a Chrome trace, for Perfetto or chrome://tracing.

A background thread moves events from the core to the file. ``ringcomm.start_timeline`` and the
option ``timeline`` start it. With a limit, the file keeps only the newest events: a flight record.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ringcomm._src.base.arguments import integer
from ringcomm._src.config.config import Config
from ringcomm._src.core import _core
from ringcomm._src.observe.events import Listener

logger = logging.getLogger("ringcomm")
DRAIN_EVERY = 0.5  # seconds between two writes


class TraceFile:
    """A file with a JSON array that is complete after every write, also if the job is killed."""

    _CLOSING = b"\n]\n"

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._end = os.pwrite(self._file, b"[", 0)
        self._separator = b"\n"
        self.append(b"")

    def append(self, text: bytes, ending: bytes = b"") -> None:
        """Appends events in JSON that are separated by commas, then the event `ending`.

        The next call overwrites `ending`, so no call may have a shorter one than the call before.
        """
        if text:
            text, self._separator = self._separator + text, b",\n"
        data = memoryview(text + (self._separator + ending if ending else b"") + self._CLOSING)
        offset, end = self._end, self._end + len(text)
        while data:
            written = os.pwrite(self._file, data, offset)
            data, offset = data[written:], offset + written
        self._end = end

    def close(self) -> None:
        os.close(self._file)


Note = tuple[str, dict[str, Any]]  # name of the row, "" for none; an event of Python, or metadata


class Batch(NamedTuple):
    """Events that are written together."""

    events: Sequence[_core.TraceEvents]
    notes: Sequence[Note]

    def size(self) -> int:
        return sum(map(len, self.events)) + len(self.notes)


class EventFile:
    """The file of a process: its metadata, and all its events or only the newest ones.

    With a limit `last`, a write that would exceed 2 `last` events replaces the file by a new one,
    which has the newest batches of at least `last` events. So each event is written at most twice
    on average, and the path always names a complete file. Devices, for example /dev/null, are never
    replaced, so they get all events.
    """

    def __init__(self, path: str, rank: int, mark_cycles: bool = False, last: int = 0) -> None:
        self.path, self._rank, self._mark_cycles = os.path.realpath(path), rank, mark_cycles
        replaceable = os.path.isfile(path) or not os.path.exists(path)
        self._last = last if last and replaceable else math.inf
        self._kept: deque[Batch] = deque()  # the file's batches; empty without a limit
        self._size = 0  # events in the file
        self._open(path)

    def _open(self, path: str) -> None:
        self._file, self._text = TraceFile(path), _core.TraceText(self._rank, self._mark_cycles)
        process = _metadata("process_name", name=f"rank {self._rank} ({socket.gethostname()})")
        order = _metadata("process_sort_index", sort_index=self._rank)
        self._append(Batch([], [("", process), ("", order), ("", _clocks()), *_descriptions(_members)]))

    def write(self, batch: Batch) -> None:
        self._size += batch.size()
        if batch.size() and self._last < math.inf:
            self._kept.append(batch)
        if self._size <= 2 * self._last:
            self._append(batch)
            return
        while self._size - self._kept[0].size() >= self._last:
            self._size -= self._kept.popleft().size()
        replaced, path = self._file, f"{self.path}.new"
        try:
            self._open(path)
            for kept in self._kept:
                self._append(kept)
            os.replace(path, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(path)
            raise
        replaced.close()

    def describe(self, members: Mapping[str, Sequence[str]]) -> None:
        """Adds the names of each bucket's tensors."""
        self._append(Batch([], _descriptions(members)))

    def _append(self, batch: Batch) -> None:
        texts = [self._text.text(events) for events in batch.events]
        texts += [self._json(row, event) for row, event in batch.notes]
        texts.append(self._text.text())  # the notes' new rows
        self._file.append(b",\n".join(filter(None, texts)), self._json("", _clocks()))

    def _json(self, row: str, event: dict[str, Any]) -> bytes:
        place = {"pid": self._rank, "tid": self._text.row(row) if row else 0}
        return json.dumps(event | place, ensure_ascii=False).encode(errors="replace")

    def close(self) -> None:
        self._file.close()


def _metadata(kind: str, /, **arguments: object) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "args": arguments}


def _clocks() -> dict[str, Any]:
    """Returns an event with both clocks: they align the files of several hosts.

    The last event of a file shows when it was written.
    """
    return _metadata("clocks", trace_ns=time.monotonic_ns(), unix_ns=time.time_ns())


def _descriptions(members: Mapping[str, Sequence[str]]) -> list[Note]:
    return [(name, _metadata("tensors", name=name, tensors=list(tensors))) for name, tensors in members.items()]


class _Writer:
    """A background writer that moves events from the core to a file until it is closed.

    If the file cannot be written any longer, the job continues without a timeline.
    """

    def __init__(self, file: EventFile) -> None:
        self._file = file
        self._notes: list[Note] = []  # events of Python since the last write
        self._dropped = _core.trace_dropped()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._failed = False
        self._listener = Listener()
        self._thread = threading.Thread(target=self._loop, name="ringcomm-timeline", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._end.wait(DRAIN_EVERY):
            self.drain()

    def drain(self) -> None:
        with self._lock:
            events = self._listener.take_batches()
            if (dropped := _core.trace_dropped()) > self._dropped:
                lost, self._dropped = dropped - self._dropped, dropped
                event = {"name": f"{lost} events were lost", "cat": "lost", "ph": "i", "s": "p"}
                self._notes.append(("", event | {"ts": time.monotonic_ns() / 1e3}))
            notes, self._notes = self._notes, []
            self._write(lambda: self._file.write(Batch(events, notes)))

    def note(self, name: str, begin_ns: int, arguments: Mapping[str, object]) -> None:
        event = {"name": name, "cat": name, "ph": "X", "args": dict(arguments)}
        self._add(name, event | {"ts": begin_ns / 1e3, "dur": (time.monotonic_ns() - begin_ns) / 1e3})

    def mark(self, row: str, kind: str, name: str, arguments: Mapping[str, object]) -> None:
        event = {"name": name, "cat": kind, "ph": "i", "s": "t", "args": dict(arguments)}
        self._add(row, event | {"ts": time.monotonic_ns() / 1e3})

    def _add(self, row: str, event: dict[str, Any]) -> None:
        with self._lock:
            if not self._failed:
                self._notes.append((row, event))

    def describe(self, members: Mapping[str, Sequence[str]]) -> None:
        with self._lock:
            self._write(lambda: self._file.describe(members))

    def _write(self, write: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed = True
            self._listener.close()
            self._end.set()
            logger.warning("timeline %s ends here, and the job continues: %s", self._file.path, error)

    def close(self) -> None:
        self._listener.close()
        self._end.set()
        self._thread.join()
        self.drain()
        self._write(self._file.close)


_writer: _Writer | None = None
_members: dict[str, Sequence[str]] = {}  # bucket of a plan -> its tensors, for timelines started later


def start(path: str, rank: int, mark_cycles: bool = False, last: int = 0) -> None:
    """Starts a timeline on rank 0, or on every rank if the path contains ``{rank}``.

    `last` above 0: the file keeps only the newest events, `last` to 2 `last`.

    Raises ValueError if `last` is negative or a timeline is being written already.
    """
    global _writer
    if integer("start_timeline: last", last) < 0:
        raise ValueError(f"start_timeline: last must be at least 0, not {last}")
    if _writer is not None:
        raise ValueError("a timeline is already being written; call stop_timeline() first")
    if "{rank}" in path or rank == 0:
        _writer = _Writer(EventFile(path.replace("{rank}", str(rank)), rank, mark_cycles, last))


def start_if_configured(config: Config, rank: int) -> None:
    """Starts the timeline of the options, if they name a file and no timeline is being written."""
    if config.timeline and _writer is None:
        start(config.timeline, rank, config.timeline_mark_cycles, config.timeline_last)


def stop() -> None:
    """Ends the timeline and closes its file. Does nothing without a timeline."""
    global _writer
    if _writer is not None:
        ending, _writer = _writer, None
        ending.close()


def flush() -> None:
    """Writes the events so far, because the process may be killed soon."""
    if _writer is not None:
        _writer.drain()


def describe(members: Mapping[str, Sequence[str]]) -> None:
    """Adds the names of each bucket's tensors to the timeline. `members`: tensors by bucket."""
    _members.update(members)
    if _writer is not None:
        _writer.describe(members)


def note(name: str, begin_ns: int, **arguments: object) -> None:
    """Adds an event of Python, from `begin_ns` (``time.monotonic_ns``) until now."""
    if _writer is not None:
        _writer.note(name, begin_ns, arguments)


def is_recording() -> bool:
    """Returns True while this process writes a timeline."""
    return _writer is not None


def mark(row: str, kind: str, name: str, **arguments: object) -> None:
    """Adds an event of this moment to a row."""
    if _writer is not None:
        _writer.mark(row, kind, name, arguments)


def abandon() -> None:
    """Drops the timeline in a forked child without closing the file, which belongs to the parent."""
    global _writer
    _writer = None
