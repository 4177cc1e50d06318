"""Reads timelines: the events of a file, and the operations of each rank."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BUCKET = re.compile(r"(plan/.+)/\d+")  # row of an optimizer's bucket; the group is the row of its steps


def read_events(path: str) -> list[Any]:
    """Returns the events of a timeline, which may be cut off.

    Raises
    ------
    ValueError
        The file is no timeline.
    OSError
        The file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    complete = text.rpartition(",\n")[0]  # if the last event is cut off
    for candidate in (text, f"{text}]", f"{complete}]"):
        try:
            events = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(events, list) and all(isinstance(event, dict) and "ph" in event for event in events):
            return events
        break
    raise not_a_timeline(path)


def not_a_timeline(path: str) -> ValueError:
    return ValueError(f"{path} is not a timeline of ringcomm")


def rows_of(events: Sequence[Any]) -> dict[int, str]:
    """Returns the name of each row by its number."""
    return {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}


def tensors_of(events: Sequence[Any]) -> dict[str, list[str]]:
    """Returns the names of each bucket's tensors."""
    return {event["args"]["name"]: event["args"]["tensors"] for event in events if event.get("name") == "tensors"}


# ---- operations ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Operation:
    """An operation on one rank. Times are seconds of the monotonic clock of the first file's host."""

    row: str
    queued: float
    call: int | None = None  # number of a call in its process group
    agreed: float | None = None  # when this rank learnt that every rank had submitted it; None: not yet, or unknown
    done: float | None = None  # None: pending
    failed: bool = False

    @property
    def name(self) -> str:
        return self.row if self.call is None else f"call {self.call} of {self.row}"


class Record:
    """The operations that a rank's timeline shows.

    Attributes
    ----------
    operations
        In the order in which they were queued.
    pending
        Those that have not completed.
    ready, members
        Of a coordinator, by row: ranks that have submitted the operation, until all have; ranks
        that took part in it before.
    tensors
        Names of each bucket's tensors.
    end
        Time of the last write to the file, or of the newest event.
    """

    def __init__(self, path: str, rank: int, events: Sequence[Any], clock_of: dict[str, int]) -> None:
        self.path, self.rank = path, rank
        self.operations: list[Operation] = []
        self.ready: dict[str, set[int]] = defaultdict(set)
        self.members: dict[str, set[int]] = defaultdict(set)
        self.tensors = tensors_of(events)
        metadata = {event["name"]: event["args"] for event in events if event["ph"] == "M"}
        self.host = re.sub(r"rank \d+ \((.*)\)", r"\1", metadata["process_name"]["name"])
        clocks = metadata["clocks"]
        # Ranks of a host share the monotonic clock: one offset for all of them keeps their order.
        # Seconds since 1970 would round times to 0.24 µs.
        start_ns = clock_of.setdefault(self.host, clocks["unix_ns"] - clocks["trace_ns"])
        offset = (start_ns - next(iter(clock_of.values()))) * 1e-9
        self.end = offset + clocks["trace_ns"] * 1e-9
        rows, self._open = rows_of(events), dict[tuple[str, int | None], Operation]()
        for event in events:
            if event["ph"] in "Xi" and event["tid"] in rows:
                begin = offset + event["ts"] * 1e-6
                end = begin + event.get("dur", 0) * 1e-6
                self.end = max(self.end, end)
                self._add(rows[event["tid"]], event["cat"], event["args"], begin, end)
        self.pending = list(self._open.values())
        self.operations.sort(key=lambda operation: operation.queued)

    def _add(self, row: str, kind: str, arguments: Any, begin: float, end: float) -> None:
        key = row, arguments.get("call")
        if row == kind:  # an event without a name
            return
        if kind == "ready":
            self.ready[row].add(int(arguments["detail"].removeprefix("rank ")))
        elif kind == "queue" or (kind == "agree" and key not in self._open):  # the timeline may begin between both
            self._open[key] = Operation(row, begin, key[1])
            self.operations.append(self._open[key])
        if kind == "agree":
            self._open[key].agreed = end
            self.members[row] |= self.ready.pop(row, set())
        elif kind == "done" and key in self._open:
            operation = self._open.pop(key)
            operation.done, operation.failed = end, arguments.get("detail") == "failed"
            if operation.failed:
                self.ready.pop(row, None)
        elif kind == "run" and key in self._open:
            if self._open[key].agreed is None:  # a call of a queue, which has no "done"
                self._open.pop(key).done = end
        elif kind == "run" and (arguments["thread"] == "caller" or BUCKET.fullmatch(row)):
            self.operations.append(Operation(row, begin, key[1], done=end))


def read_records(paths: Sequence[str]) -> dict[int, Record]:
    """Returns the record of each rank that the files show. A file may show several ranks.

    Raises
    ------
    ValueError
        A file is no timeline, or two files are of one rank.
    OSError
        A file cannot be read.
    """
    records: dict[int, Record] = {}
    clock_of: dict[str, int] = {}  # host -> Unix time at which its monotonic clock was 0, in ns
    for path in paths:
        ranks: dict[int, list[Any]] = defaultdict(list)
        try:
            for event in read_events(path):
                ranks[event["pid"]].append(event)
            found = {rank: Record(path, rank, events, clock_of) for rank, events in ranks.items()}
        except (KeyError, TypeError, AttributeError):
            raise not_a_timeline(path) from None
        if not found:
            raise not_a_timeline(path)
        if twice := found.keys() & records.keys():
            raise ValueError(
                f"{records[min(twice)].path} and {path} are both of rank {min(twice)}: give one job's files"
            )
        records |= found
    return dict(sorted(records.items()))
