"""What the ranks tell each other about an optimizer's parameters before its gradients get a plan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ringcomm import errors
from ringcomm.torch.asynchronous import allgather_async
from ringcomm.torch.bridge import PlanId, dead_plans
from ringcomm.torch.buckets import dense_strides
from ringcomm.torch.functions import allgather_object
from ringcomm.torch.slot import Slot


@dataclass(frozen=True)
class Agreed:
    """The same on every rank."""

    order: list[int]  # slots in the order in which the first rank's backward made their gradients
    sparse: list[bool]  # some rank's gradient was sparse
    dead_plans: list[PlanId]  # abandoned by every rank
    complete: bool  # every rank is here: none has joined


def describe(slot: Slot) -> str:
    parameter = slot.parameter
    return f"{slot.name}: {parameter.dtype} {tuple(parameter.shape)} strides {dense_strides(parameter)}"


def _digest(texts: Sequence[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(texts).encode(), digest_size=7).digest(), "little")


def _exchange(row: list[int], name: str, process_set: Any) -> list[list[int]]:
    """Every rank's row, but those of ranks that have joined; they may be of different lengths."""
    mine = torch.tensor([len(row), *row], dtype=torch.int64)
    gathered = allgather_async(mine, name, process_set).wait().tolist()
    rows, at = [], 0
    while at < len(gathered):
        end = at + 1 + gathered[at]
        rows.append(gathered[at + 1 : end])
        at = end
    return rows


def _row_of(slots: Sequence[Slot], settings: str) -> int:
    return _digest([settings, *map(describe, slots)])


def require_equal(slots: Sequence[Slot], settings: str, name: str, process_set: Any) -> None:
    """Raises MismatchError on every rank (that has not joined) unless all give the same."""
    rows = _exchange([_row_of(slots, settings)], name, process_set)
    if any(other != rows[0] for other in rows):
        raise _mismatch(slots, settings, name, process_set)


def agree(slots: Sequence[Slot], settings: str, name: str, process_set: Any) -> Agreed:
    """Exchanges one row of numbers per rank.

    ``settings`` describes what must be equal besides the parameters. Raises MismatchError on every rank if they differ.
    """
    dead = dead_plans(process_set)
    row = [_row_of(slots, settings)]
    row += [slot.fired for slot in slots] + [slot.sparse_dim for slot in slots]
    rows = _exchange(row + [part for plan_id in dead for part in plan_id], name, process_set)
    if any(other[0] != rows[0][0] for other in rows):
        raise _mismatch(slots, settings, name, process_set)
    count = len(slots)
    fired = rows[0][1 : 1 + count]
    dims = [max(other[1 + count + i] for other in rows) for i in range(count)]
    for slot, dim in zip(slots, dims, strict=True):
        slot.sparse_dim = slot.sparse_dim or dim
    all_dead = [set(zip(other[1 + 2 * count :: 2], other[2 + 2 * count :: 2], strict=True)) for other in rows]
    return Agreed(
        # Those that gave no gradient come last, the parameters of the last layers first: backward runs from there.
        sorted(range(count), key=lambda i: (fired[i] < 0, fired[i] if fired[i] >= 0 else -i)),
        [dim > 0 for dim in dims],
        sorted(set.intersection(*all_dead)),
        len(rows) == process_set.size(),
    )


def _mismatch(slots: Sequence[Slot], settings: str, name: str, process_set: Any) -> errors.MismatchError:
    """Says where the first two ranks that differ do so."""
    mine = (process_set.ranks[process_set.rank()], [settings, *map(describe, slots)])
    (first_rank, first), *others = allgather_object(mine, f"{name}.details", process_set)
    for rank, theirs in others:
        if theirs == first:
            continue
        what = next(
            ((a, b) for a, b in zip(first, theirs, strict=False) if a != b),
            (f"{len(first) - 1} trainable parameters", f"{len(theirs) - 1} trainable parameters"),
        )
        return errors.MismatchError(
            f"DistributedOptimizer: rank {first_rank} has {what[0]} where rank {rank} has {what[1]}; every rank must "
            "wrap the same parameters, of the same names, with the same settings",
            (first_rank, rank),
        )
    return errors.MismatchError("DistributedOptimizer: ranks have different parameters")
