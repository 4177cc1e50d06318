"""Agreement of the ranks on parameters and settings before they make a plan for gradients.

If parameters or settings differ, every rank gets a MismatchError that names the first difference.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringcomm._src.base import errors
from ringcomm._src.named.agreement import exchange
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.training.pieces import UNUSED
from ringcomm._src.training.plans import PlanId, abandoned_plans


class ParameterFacts(NamedTuple):
    """A parameter, as a rank has observed it in the step before the plan."""

    text: str  # name, dtype and shape, which must be identical on all ranks
    fired: int  # index of its gradient in the order of the backward pass; -1: it had no gradient
    sparse_dim: int  # sparse dimensions of its sparse gradients; 0: it had none
    used: int = UNUSED  # place in the order in which the forward pass used parameters first


@dataclass(frozen=True)
class Agreement:
    """The result of the agreement, identical on all ranks."""

    order: list[int]  # parameters in the order in which the first rank's backward pass made their gradients
    sparse_dims: list[int]  # maximum over the ranks
    abandoned_plans: list[PlanId]  # plans that every rank has abandoned
    complete: bool  # True if every rank takes part, because no rank has joined
    turn: int  # place of the plan in the order of the process set's `Turns`, in which all ranks make plans
    used: list[int] | None = None  # places in the order of use on the first rank; None: not observed


class _Row(NamedTuple):
    """A rank's part of the agreement."""

    digest: int
    turn: int
    fired: list[int]
    sparse_dims: list[int]
    abandoned: list[PlanId]
    used: list[int]

    def packed(self) -> list[int]:
        return [
            self.digest,
            self.turn,
            len(self.fired),
            *self.fired,
            *self.sparse_dims,
            *self.used,
            *itertools.chain(*self.abandoned),
        ]

    @staticmethod
    def unpacked(numbers: list[int]) -> _Row:
        digest, turn, count, *rest = numbers
        fired, dims, used = (rest[i * count : (i + 1) * count] for i in range(3))
        abandoned = iter(rest[3 * count :])
        return _Row(digest, turn, fired, dims, list(zip(abandoned, abandoned, strict=True)), used)


def _digest(texts: Sequence[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(texts).encode(), digest_size=7).digest(), "little")


def require_equal_texts(
    texts: Sequence[str], name: str, process_set: ProcessSet, owner: str = "DistributedOptimizer", flag: bool = False
) -> bool:
    """Compares texts between ranks. Returns True if any rank gives a true `flag`.

    If texts differ, raises MismatchError on every rank that has not joined. The message names
    `owner`. The first text describes settings, and each further text describes a parameter.
    """
    rows = list(exchange([_digest(texts), flag], name, process_set).values())
    if any(other[0] != rows[0][0] for other in rows):
        raise _mismatch(texts, name, process_set, owner)
    return any(other[1] for other in rows)


def agree(parameters: Sequence[ParameterFacts], settings: str, name: str, process_set: ProcessSet) -> Agreement:
    """Compares parameters and settings, and agrees on the next plan, by one exchange. Collective.

    ``settings``: text that must be equal on all ranks. Raises MismatchError on every rank if
    parameters or settings differ.
    """
    texts = [settings, *(parameter.text for parameter in parameters)]
    fired, dims = [parameter.fired for parameter in parameters], [parameter.sparse_dim for parameter in parameters]
    first = process_set.rank() == 0
    used = [parameter.used for parameter in parameters]
    turn = process_set.turns.draw() if first else -1
    mine = _Row(_digest(texts), turn, fired, dims, abandoned_plans(process_set), used)
    rows = [_Row.unpacked(row) for row in exchange(mine.packed(), name, process_set).values()]
    complete = len(rows) == process_set.size()
    if first and not complete:
        process_set.turns.return_last()
    if any(row.digest != mine.digest for row in rows):
        if complete:
            with process_set.turns.take(rows[0].turn):
                pass  # the turn ends without a plan
        raise _mismatch(texts, name, process_set)
    fired = rows[0].fired
    return Agreement(
        # Parameters with a gradient are first, in the order of the backward pass. The others follow
        # in reverse order, because the backward pass starts at the last layers.
        sorted(range(len(fired)), key=lambda i: (fired[i] < 0, fired[i] if fired[i] >= 0 else -i)),
        [max(dims_of_all) for dims_of_all in zip(*(row.sparse_dims for row in rows), strict=True)],
        sorted(set.intersection(*(set(row.abandoned) for row in rows))),
        complete,
        rows[0].turn,
        rows[0].used if any(place != UNUSED for place in rows[0].used) else None,
    )


def _mismatch(
    texts: Sequence[str], name: str, process_set: ProcessSet, owner: str = "DistributedOptimizer"
) -> errors.MismatchError:
    """Returns the error that names the first difference between the first and another rank."""
    mine = "\0".join(texts).encode()
    rows = exchange(list(mine), f"{name}.details", process_set).items()
    (first_rank, first), *others = ((rank, bytes(text).decode().split("\0")) for rank, text in rows)
    for rank, theirs in others:
        if theirs == first:
            continue
        what = next(
            ((a, b) for a, b in zip(first, theirs, strict=False) if a != b),
            (f"{len(first) - 1} trainable parameters", f"{len(theirs) - 1} trainable parameters"),
        )
        return errors.MismatchError(
            f"{owner}: rank {first_rank} has {what[0]} where rank {rank} has {what[1]}; every rank must "
            "wrap the same parameters, with the same names and settings",
            (first_rank, rank),
        )
    return errors.MismatchError(f"{owner}: ranks have different parameters")
