"""Writes the events of this process as a Chrome trace, for Perfetto or chrome://tracing.

A background thread moves events from the core to the file. ``ringcomm.start_timeline`` and the
option ``timeline`` start it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from ringcomm._src.core import _core
from ringcomm._src.observe.events import Listener

DRAIN_EVERY = 0.5  # seconds between two writes


class TraceFile:
    """A file with a JSON array that is complete after every write, also if the job is killed."""

    _CLOSING = b"\n]\n"

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._end = os.pwrite(self._file, b"[", 0)
        self._first = True
        self.write([])

    def write(self, events: Sequence[str]) -> None:
        """Appends events, each in JSON."""
        self.append(",\n".join(events).encode())

    def append(self, text: bytes) -> None:
        """Appends events in JSON that are separated by commas."""
        if text:
            text = (b"\n" if self._first else b",\n") + text
            self._first = False
        data = memoryview(text + self._CLOSING)
        offset, end = self._end, self._end + len(text)
        while data:
            written = os.pwrite(self._file, data, offset)
            data, offset = data[written:], offset + written
        self._end = end

    def close(self) -> None:
        os.close(self._file)


class _Writer:
    """A background writer that moves events from the core to a file until it is closed."""

    def __init__(self, path: str, rank: int, mark_cycles: bool) -> None:
        self._file = TraceFile(path)
        self._rank = rank
        self._text = _core.TraceText(rank, mark_cycles)
        self._pending: list[str] = []  # events from Python
        self._dropped = _core.trace_dropped()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._meta("process_name", 0, name=f"rank {rank} ({socket.gethostname()})")
        self._meta("process_sort_index", 0, sort_index=rank)
        # The two clocks let tools align the files of several hosts.
        self._meta("clocks", 0, trace_ns=time.monotonic_ns(), unix_ns=time.time_ns())
        self._listener = Listener()
        self._thread = threading.Thread(target=self._loop, name="ringcomm-timeline", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._end.wait(DRAIN_EVERY):
            self.drain()

    def drain(self) -> None:
        with self._lock:
            texts = [self._text.text(events) for events in self._listener.take_batches()]
            if (dropped := _core.trace_dropped()) > self._dropped:
                lost, self._dropped = dropped - self._dropped, dropped
                fields = f'"ts":{time.monotonic_ns() / 1e3},"pid":{self._rank},"tid":0'
                self._pending.append(f'{{"name":"{lost} events were lost","cat":"lost","ph":"i","s":"p",{fields}}}')
            self._file.append(b",\n".join(filter(None, [*texts, ",\n".join(self._pending).encode()])))
            self._pending = []

    def _meta(self, kind: str, row: int, /, **arguments: object) -> None:
        self._pending.append(
            json.dumps({"name": kind, "ph": "M", "pid": self._rank, "tid": row, "args": arguments}, ensure_ascii=False)
        )

    def note(self, name: str, begin_ns: int, arguments: Mapping[str, object]) -> None:
        times = {"ts": begin_ns / 1e3, "dur": (time.monotonic_ns() - begin_ns) / 1e3}
        with self._lock:
            row = self._text.row(name)
            event = {"name": name, "cat": name, "ph": "X", "pid": self._rank, "tid": row, "args": dict(arguments)}
            self._pending.append(json.dumps(event | times))

    def describe(self, members: Mapping[str, Sequence[str]]) -> None:
        with self._lock:
            for name, tensors in members.items():
                self._meta("tensors", self._text.row(name), name=name, tensors=list(tensors))
            self._file.append(self._text.text())

    def close(self) -> None:
        self._listener.close()
        self._end.set()
        self._thread.join()
        self.drain()
        self._file.close()


_writer: _Writer | None = None
_members: dict[str, Sequence[str]] = {}  # bucket of a plan -> its tensors, for timelines started later


def start(path: str, rank: int, mark_cycles: bool = False) -> None:
    """Starts a timeline on rank 0, or on every rank if the path contains ``{rank}``.

    Raises ValueError if a timeline is being written already.
    """
    global _writer
    if _writer is not None:
        raise ValueError("a timeline is already being written; call stop_timeline() first")
    if "{rank}" in path or rank == 0:
        _writer = _Writer(path.replace("{rank}", str(rank)), rank, mark_cycles)
        _writer.describe(_members)


def start_if_configured(path: str, rank: int, mark_cycles: bool) -> None:
    """Starts the timeline of the options, unless `path` is "" or a timeline is being written."""
    if path and _writer is None:
        start(path, rank, mark_cycles)


def stop() -> None:
    """Ends the timeline and closes its file. Does nothing without a timeline."""
    global _writer
    if _writer is not None:
        ending, _writer = _writer, None
        ending.close()


def flush() -> None:
    """Writes the events so far, because the process may be killed soon."""
    if _writer is not None:
        with contextlib.suppress(OSError):
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


def abandon() -> None:
    """Drops the timeline in a forked child without closing the file, which belongs to the parent."""
    global _writer
    _writer = None
