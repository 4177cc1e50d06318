"""Implements `ringcomm timeline`: shows the last operations of each rank, and which rank is late."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ringcomm._src.cli.sizes import human_time
from ringcomm._src.cli.text import aligned, refuse, runs
from ringcomm._src.cli.timeline_files import BUCKET, Operation, Record, read_records

NAMES = 3  # tensors of a bucket, or ranks, that a line names
LAG = 2.0  # seconds; a process writes its file every 0.5 s

Records = Mapping[int, Record]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="timelines, best those of all ranks: t*.json")
    parser.add_argument("--last", type=int, default=6, metavar="K", help="operations to show of each rank (default 6)")


def run(options: argparse.Namespace) -> int:
    if options.last < 1:
        return refuse("timeline", "--last must be at least 1")
    try:
        records = read_records(options.files)
    except (ValueError, OSError) as error:
        return refuse("timeline", error)
    print("\n".join(report(records, options.last)))
    return 0


def report(records: Records, last: int) -> Iterator[str]:
    end = max(record.end for record in records.values())
    for record in records.values():
        yield from last_operations(record, end, last)
        yield ""
    yield from late_records(records, end)
    found = waits(records)
    yield from conclusions(found, records, end)
    yield from failures(records, end)
    if not found:
        yield from silence(records, end)
        yield "no operation is pending; most of the time was spent in"
        yield from summary(records, last)


# ---- the last operations of a rank -----------------------------------------------------------------------------------


def last_operations(record: Record, end: float, last: int) -> Iterator[str]:
    yield f"rank {record.rank} on {record.host}"
    done = [operation for operation in record.operations if operation.done is not None]
    shown = [*done[-last:], *record.pending[:last]]
    if not shown:
        yield "  no operation in its file"
        return
    rows = [("queued", "operation", "state", "time")]
    for operation in sorted(shown, key=lambda operation: operation.queued):
        took = "" if operation.done is None else human_time(operation.done - operation.queued)
        tensors = f" ({listed(record.tensors[operation.row])})" if operation.row in record.tensors else ""
        rows.append((f"{operation.queued - end:.4f} s", operation.name + tensors, state(operation), took))
    yield from table(rows, (1, 2))
    if len(record.pending) > last:
        yield f"  and {len(record.pending) - last} more that are pending"


def state(operation: Operation) -> str:
    if operation.done is not None:
        return "failed" if operation.failed else "done"
    return "queued" if operation.agreed is None else "running"


def table(rows: Sequence[tuple[str, ...]], left: Sequence[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  " + aligned(row, widths, left) for row in rows)


def listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:NAMES])) + (", ..." if len(names) > NAMES else "")


# ---- pending operations ----------------------------------------------------------------------------------------------


class Wait(NamedTuple):
    """A pending operation."""

    pending: dict[int, Operation]  # by rank
    missing: tuple[int, ...]  # ranks that have not submitted it

    @property
    def oldest(self) -> Operation:
        return first_of(self.pending)


def first_of(pending: Mapping[int, Operation]) -> Operation:
    return min(pending.values(), key=lambda operation: operation.queued)


def waits(records: Records) -> list[Wait]:
    """Returns the pending operations, the oldest first."""
    found: dict[str, dict[int, Operation]] = defaultdict(dict)
    for rank, record in records.items():
        for operation in record.pending:
            found[operation.name][rank] = operation
    every = [Wait(pending, tuple(sorted(missing(pending, records)))) for pending in found.values()]
    return sorted(every, key=lambda wait: wait.oldest.queued)


def missing(pending: Mapping[int, Operation], records: Records) -> set[int]:
    """Returns the ranks that have not submitted an operation.

    The coordinator's file shows which ranks have submitted a named operation; without it, the files
    of the other ranks do. If the operation has run before, its ranks are those of then, else all.
    """
    if any(operation.agreed is not None for operation in pending.values()):
        return set()
    oldest = first_of(pending)
    known, members, ready, finished = set(records), set[int](), set[int](), set[int]()
    for rank, record in records.items():
        known = known.union(*record.ready.values(), *record.members.values())
        members |= record.members.get(oldest.row, set())
        ready |= record.ready.get(oldest.row, set())
        for operation in record.operations:
            if operation.row == oldest.row and operation.done is not None:
                members.add(rank)
                if operation.name == oldest.name and (oldest.call is not None or operation.done > oldest.queued):
                    finished.add(rank)
    return (members or known) - pending.keys() - (ready or finished)


def conclusions(found: Sequence[Wait], records: Records, end: float) -> Iterator[str]:
    """Yields a line for all operations that wait for the same ranks, then a line for each of these."""
    groups: dict[tuple[object, ...], list[Wait]] = defaultdict(list)
    for wait in found:
        groups[tuple(wait.pending), wait.missing, wait.oldest.agreed is None].append(wait)
    for first, *more in groups.values():
        others, has, it = (f" and {len(more)} more", "have", "them") if more else ("", "has", "it")
        since = f"for {human_time(end - first.oldest.queued)} on {ranks_text(list(first.pending))}"
        if first.missing:
            late = f"{ranks_text(first.missing)} {'has' if len(first.missing) == 1 else 'have'}"
            yield f"'{first.oldest.name}'{others} {has} waited {since}: {late} not submitted {it}"
            yield from (f"  rank {rank} {activity(rank, records, end)}" for rank in first.missing[:NAMES])
        else:
            ranks = "every rank of these files" if first.oldest.agreed is None else "every rank"
            yield f"'{first.oldest.name}'{others} {has} been pending {since}: {ranks} has submitted {it}"
            yield from incomplete_buckets(first, records)


def activity(rank: int, records: Records, end: float) -> str:
    """Returns the newest operation of a late rank, as far as its file shows."""
    if rank not in records:
        return "has no file here"
    if pending := records[rank].pending:
        return f"waits for {listed([repr(operation.name) for operation in pending])}"
    ends = [(operation.done, operation.name) for operation in records[rank].operations if operation.done is not None]
    if not ends:
        return "has completed no operation that its file shows"
    return f"completed '{max(ends)[1]}' last, {human_time(end - max(ends)[0])} before the end"


def incomplete_buckets(wait: Wait, records: Records) -> Iterator[str]:
    """Yields the buckets that a pending step of an optimizer has not reduced."""
    named = {name: tensors for record in records.values() for name, tensors in record.tensors.items()}
    for bucket, tensors in named.items():
        found = BUCKET.fullmatch(bucket)
        if found and found[1] == wait.oldest.row:
            left = [rank for rank, step in wait.pending.items() if not has_run(bucket, step.queued, records[rank])]
            if left:
                yield f"  '{bucket}' ({listed(tensors)}) is not reduced on {ranks_text(left)}"


def has_run(row: str, since: float, record: Record) -> bool:
    return any(operation.row == row and operation.queued >= since for operation in record.operations)


def late_records(records: Records, end: float) -> Iterator[str]:
    """Yields a line for each rank with a file that ends earlier than the others."""
    for rank, record in records.items():
        if end - record.end > LAG:
            yield (
                f"the file of rank {rank} ends {human_time(end - record.end)} before the newest one: "
                "the process has ended, is stopped, or cannot run Python"
            )


def silence(records: Records, end: float) -> Iterator[str]:
    """Yields a line if no operation of any rank is recent, although none is pending."""
    newest = max((seen.done or end for record in records.values() for seen in record.operations), default=end)
    if end - newest > LAG:
        yield (
            f"all ranks completed their last operation {human_time(end - newest)} before the end, or earlier: they "
            "compute, or are in a blocking call of a Communicator, which is recorded when it ends"
        )


def failures(records: Records, end: float) -> Iterator[str]:
    """Yields a line for each operation that failed."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, record in records.items():
        for operation in record.operations:
            if operation.failed:
                found[operation.name][rank] = end - (operation.done or end)
    for name, ages in found.items():
        yield f"'{name}' failed on {ranks_text(list(ages))}, {human_time(max(ages.values()))} before the end"


def ranks_text(ranks: Sequence[int]) -> str:
    """Returns "rank 3", or "ranks 0-5, 7"."""
    spans = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs(ranks)]
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(spans)}"


# ---- a summary -------------------------------------------------------------------------------------------------------


def summary(records: Records, most: int) -> Iterator[str]:
    """Yields a table of the operations that took the most time, over all ranks."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for record in records.values():
        for operation in record.operations:
            if operation.done is not None:
                groups[operation.row].append(operation)
    rows = [("operation", "count", "median", "longest", "waiting for ranks")]
    for row, found in sorted(groups.items(), key=lambda group: -sum(map(seconds, group[1])))[:most]:
        times = [seconds(operation) for operation in found]
        agreed = [(operation.agreed - operation.queued) for operation in found if operation.agreed is not None]
        share = f"{sum(agreed) / sum(times):.0%}" if agreed and sum(times) else "-"
        rows.append((row, str(len(found)), human_time(statistics.median(times)), human_time(max(times)), share))
    yield from table(rows, (0,))


def seconds(operation: Operation) -> float:
    return (operation.done or operation.queued) - operation.queued
