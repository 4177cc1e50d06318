"""Exchange and comparison of rows of numbers between ranks.

Process sets and the plans of optimizers use it to compare more than the consistency check of an
operation does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringcomm._src.arrays import arrays
from ringcomm._src.base.errors import MismatchError, RankJoinedError
from ringcomm._src.calls import row_calls
from ringcomm._src.named import named
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

_CALLS = ("add_process_set", "remove_process_set", "init")


def exchange(row: Sequence[int], name: str, process_set: ProcessSet) -> dict[int, list[int]]:
    """Returns every rank's row, keyed by rank of the world, in rank order. Collective over the set.

    Rows may have different lengths. Ranks that have joined have no row.
    """
    if process_set.size() == 1:
        return {process_set.ranks[0]: list(row)}
    own_row = np.array([process_set.ranks[process_set.require_rank()], len(row), *row], np.int64)
    gathered = named.submit(process_set, row_calls.allgather_any(arrays.source(own_row)), name).wait().tolist()
    rows: dict[int, list[int]] = {}
    while gathered:
        end = 2 + gathered[1]
        rows[gathered[0]], gathered = gathered[2:end], gathered[end:]
    return rows


def agree_on_sets(what: str, values: Sequence[int]) -> None:
    """Checks that all ranks take part and gave equal values.

    If not, raises MismatchError or RankJoinedError on every rank.
    """
    require_equal_sets(what, exchange_sets(what, values))


def exchange_sets(what: str, values: Sequence[int]) -> dict[int, list[int]]:
    """Returns every rank's values.

    Raises an error on every rank if a rank has joined, or makes a different call.
    """
    rows = exchange([_CALLS.index(what), *values], "process_sets", global_process_set)
    missing = tuple(rank for rank in global_process_set.ranks if rank not in rows)
    if missing:
        raise RankJoinedError(f"{what} needs all ranks, but ranks {list(missing)} have joined", missing)
    passed = {rank: row[1:] for rank, row in rows.items()}
    first = next(iter(rows.values()))[0]
    others = tuple(rank for rank, row in rows.items() if row[0] != first)
    if others:
        raise _disagreement(what, passed, others)
    return passed


def require_equal_sets(what: str, rows: dict[int, list[int]]) -> None:
    first = next(iter(rows.values()))
    others = tuple(rank for rank, row in rows.items() if row != first)
    if others:
        raise _disagreement(what, rows, others)


def _disagreement(what: str, rows: dict[int, list[int]], ranks: tuple[int, ...]) -> MismatchError:
    rows_text = "; ".join(f"rank {rank} passed {row}" for rank, row in rows.items())
    return MismatchError(
        f"{what}: all ranks must add, or remove, the same process set in the same call: {rows_text}", ranks
    )
