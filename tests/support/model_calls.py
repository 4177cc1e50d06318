"""Random calls of a communicator, and their results on every rank, computed with NumPy.

`drawn_step` draws one step from any source of small numbers, so that hypothesis and a seeded
generator draw the same programs. `cases` computes a collective's arguments and results of all
ranks. model_ranks.py makes the calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import drawn_calls
import numpy as np
from drawn_calls import random_bytes
from model_values import LAST, PAIRS, REDUCED, Array, fold, values

from ringcomm._src.base.ops import Op
from ringcomm._src.core import _core

KINDS = ["collective"] * 8 + ["messages"] * 4 + ["mismatch", "refused", "wait", "again", "split", "close"]
MOVED = [*drawn_calls.MOVED, np.dtype("V3"), np.dtype("S5"), np.dtype(np.complex64), PAIRS[0]]
FORMS = ["", "i", "init"]
ROWS = [1, 0, 2, 3, 7, 60, 3000]
TAILS: list[tuple[int, ...]] = [(), (3,), (2, 2), (2, 0)]
LAYOUTS = ["C", "Fortran", "reversed", "gaps", "unaligned", "read-only", "shared", "list"]
OUTPUTS = ["new", "given", "in place", "reversed", "gaps", "shared"]


class Step(NamedTuple):
    """One step of a program. Each number is taken modulo the number of choices."""

    kind: str
    call: int
    form: str
    what: int  # dtype, and op of a reduction
    root: int
    rows: int
    tail: tuple[int, ...]
    layout: str
    output: str
    group: int
    variant: int
    seed: int


def drawn_step(pick: Callable[[int], int]) -> Step:
    """Draws a step; `pick(n)` returns a number below n, and 0 is the simplest choice."""

    def one(choices: list[Any]) -> Any:
        return choices[pick(len(choices))]

    return Step(
        kind=one(KINDS),
        call=pick(len(CALLS) * 2),
        form=one(FORMS),
        what=pick(len(REDUCED)),
        root=pick(9),
        rows=pick(len(ROWS)),
        tail=one(TAILS),
        layout=one(LAYOUTS),
        output=one(OUTPUTS),
        group=pick(3),
        variant=pick(60),
        seed=pick(100),
    )


# ---- collectives -----------------------------------------------------------------------------------------------------
class Case(NamedTuple):
    """One rank's call."""

    x: Array | None
    named: dict[str, Any]
    expected: Array | None  # None if this rank has no result
    in_place: bool = False  # `out` may be x


def rows_of(step: Step, size: int, turn: int = 0) -> list[int]:
    """Returns each rank's rows: unequal in half of the cases; the last one's vary by turn."""
    if step.variant % 2:
        return [ROWS[step.rows]] * size
    rows = [ROWS[(step.rows * (rank + 1) + step.seed) % len(ROWS)] for rank in range(size)]
    return [*rows[:-1], ROWS[(ROWS.index(rows[-1]) + (turn if step.form != "init" else 0)) % len(ROWS)]]


def _moved(step: Step, shapes: list[tuple[int, ...]], turn: int) -> list[Array]:
    dtype = MOVED[step.what % len(MOVED)]
    return [random_bytes(dtype, shape, step.seed + turn, rank) for rank, shape in enumerate(shapes)]


def _numbers(step: Step, size: int, turn: int, flat: bool = True) -> tuple[Any, list[Array]]:
    op, dtype = REDUCED[step.what]
    shape = (ROWS[step.rows], *step.tail)
    if flat and step.variant % 10 == 9:
        shape = ()
    return op, [values(op, dtype, shape, rank, step.seed + turn) for rank in range(size)]


def _reductions(step: Step, size: int, turn: int, call: str) -> list[Case]:
    op, xs = _numbers(step, size, turn)
    if call in ("scan", "exscan"):
        op = Op.Sum if op == Op.Average else op
        first = call == "scan"
        folded = [fold(op, xs[: rank + first]) if rank + first else None for rank in range(size)]
        return [Case(x, {"op": op}, result, True) for x, result in zip(xs, folded, strict=True)]
    root, total = step.root % size, fold(op, xs)
    if call == "reduce":
        return [Case(x, {"op": op, "root": root}, total if rank == root else None, True) for rank, x in enumerate(xs)]
    scale = 2.0 if op == Op.Sum and total.dtype.name in ("float32", "float64") and step.variant % 3 == 0 else 1.0
    named = {"op": op}
    if scale != 1:
        named |= {"prescale_factor": scale, "postscale_factor": 0.25}
        total = total * total.dtype.type(0.5)
    if op == Op.Sum and step.variant % 5 == 3:
        named["wire"] = ("float16", "bfloat16")[step.variant % 2]  # the sums are exact in these formats
    return [Case(x, named, total, True) for x in xs]


def _scattered(step: Step, size: int, turn: int, call: str) -> list[Case]:
    op, xs = _numbers(step, size, turn, flat=False)
    rows = len(xs[0])
    counts = [rows // size + (rank < rows % size) for rank in range(size)]
    named: dict[str, Any] = {"op": op}
    if call == "reduce_scatter":
        counts = counts[1:] + counts[:1]
        counts[0], counts[-1] = (counts[0] + counts[-1], 0) if size > 1 else (rows, rows)
        named["counts"] = counts
    parts = np.split(fold(op, xs), np.cumsum(counts)[:-1])
    return [Case(x, named, part) for x, part in zip(xs, parts, strict=True)]


def _broadcasts(step: Step, size: int, turn: int, call: str) -> list[Case]:
    xs = _moved(step, [(ROWS[step.rows], *step.tail)] * size, turn)
    root = step.root % size
    return [Case(x, {"root": root}, xs[root], True) for x in xs]


def _gathers(step: Step, size: int, turn: int, call: str) -> list[Case]:
    rows = [ROWS[step.rows]] * size if call == "gather" else rows_of(step, size, turn)
    shapes = [(n, *step.tail) for n in rows]
    if call in ("gather", "allgather") and step.variant % 10 == 9:
        shapes, rows = [()] * size, [1] * size
    xs = _moved(step, shapes, turn)
    together = np.concatenate([np.atleast_1d(x) for x in xs])
    named: dict[str, Any] = {}
    told = len(set(rows)) > 1 if step.form else step.variant % 3 == 0
    if call != "gather" and told:
        named["rows" if call == "allgather" else "counts"] = rows
    if call.startswith("all"):
        return [Case(x, named, together) for x in xs]
    root = step.root % size
    named["root"] = root
    return [Case(x, named, together if rank == root else None) for rank, x in enumerate(xs)]


def _scatters(step: Step, size: int, turn: int, call: str) -> list[Case]:
    rows = rows_of(step, size) if call == "scatterv" else [ROWS[step.rows]] * size
    xs = _moved(step, [(sum(rows), *step.tail)] * size, turn)
    root = step.root % size
    named: dict[str, Any] = {"root": root} | ({"counts": rows} if call == "scatterv" else {})
    return [Case(x, named, part) for x, part in zip(xs, np.split(xs[root], np.cumsum(rows)[:-1]), strict=True)]


def _exchanges(step: Step, size: int, turn: int, call: str) -> list[Case]:
    rng = np.random.default_rng(step.seed)
    scale = max(1, ROWS[step.rows] // 10)
    sent = rng.integers(0, 4, (size, size)) * scale
    even = call == "alltoall" and step.variant % 2 == 1
    if even:
        sent[...] = ROWS[step.rows]
    elif step.form != "init":
        sent[-1] = np.roll(sent[-1], turn)
    xs = _moved(step, [(int(n), *step.tail) for n in sent.sum(axis=1)], turn)
    parts = [np.split(x, np.cumsum(sent[rank])[:-1]) for rank, x in enumerate(xs)]
    cases = []
    for rank, x in enumerate(xs):
        mine, theirs = sent[rank].tolist(), sent[:, rank].tolist()
        named: dict[str, Any] = {}
        if call == "alltoallv":
            told = bool(step.form) or step.variant % 3 == 0
            named = {"sendcounts": mine, "recvcounts": theirs if told else None}
        elif not even:
            named = {"splits": mine} | ({"received_splits": theirs} if step.form else {})
        cases.append(Case(x, named, np.concatenate([part[rank] for part in parts])))
    return cases


def edges(step: Step, size: int) -> list[list[int]]:
    """Returns, for each rank, the ranks that it sends to, in a random graph."""
    chosen = np.random.default_rng(step.seed).random((size, size)) < (0.2, 0.5, 0.9)[step.variant % 3]
    return [np.flatnonzero(row).tolist() for row in chosen]


def _neighbours(step: Step, size: int, turn: int, call: str) -> list[Case]:
    graph, n = edges(step, size), ROWS[step.rows]
    receives = [[other for other in range(size) if rank in graph[other]] for rank in range(size)]
    if call == "neighbours.allgather":
        xs = _moved(step, [(n, *step.tail)] * size, turn)
        parts = {(a, b): xs[a] for a in range(size) for b in graph[a]}
        named: dict[str, Any] = {}
    else:
        xs = _moved(step, [(n * len(to), *step.tail) for to in graph], turn)
        parts = {(a, b): xs[a][i * n : (i + 1) * n] for a in range(size) for i, b in enumerate(graph[a])}
        named = {"rows": n}
    none = xs[0][:0]
    return [Case(x, named, np.concatenate([none, *(parts[a, b] for a in receives[b])])) for b, x in enumerate(xs)]


def _barriers(step: Step, size: int, turn: int, call: str) -> list[Case]:
    return [Case(None, {}, None)] * size


CALLS: dict[str, Callable[[Step, int, int, str], list[Case]]] = {
    **dict.fromkeys(("allreduce", "reduce", "scan", "exscan"), _reductions),
    **dict.fromkeys(("reducescatter", "reduce_scatter"), _scattered),
    "broadcast": _broadcasts,
    **dict.fromkeys(("allgather", "allgatherv", "gather", "gatherv"), _gathers),
    **dict.fromkeys(("scatter", "scatterv"), _scatters),
    **dict.fromkeys(("alltoall", "alltoallv"), _exchanges),
    **dict.fromkeys(("neighbours.allgather", "neighbours.alltoall"), _neighbours),
    "barrier": _barriers,
}
NAMES = list(CALLS)


def call_of(step: Step) -> str:
    return NAMES[step.call % len(NAMES)]


def form_of(step: Step, call: str) -> str:
    """Returns the step's form of this call. Exchanges between neighbours have no persistent form."""
    return step.form and "i" if call.startswith("neighbours") else step.form


def method(comm: Any, call: str, step: Step) -> Callable[..., Any]:
    """Returns the communicator's method that makes this call in the step's form."""
    form = form_of(step, call)
    if call.startswith("neighbours"):
        comm, call = comm.neighbours(edges(step, comm.size)), call.split(".")[1]
    found: Callable[..., Any] = getattr(comm, {"": call, "i": f"i{call}", "init": f"{call}_init"}[form])
    return found


@functools.lru_cache(maxsize=64)
def cases(step: Step, size: int, turn: int = 0) -> list[Case]:
    """Returns every rank's call. `turn` counts the starts of a persistent call."""
    call = call_of(step)
    made = CALLS[call](step, size, turn, call)
    collective = call.removesuffix("v").replace("_", "")
    names = [one.name for one in _core.algorithms() if one.collective == collective]
    if collective == "alltoall" and made[0].named:
        names.remove("bruck")  # it needs blocks of equal size
    if not names or (step.seed + step.variant) % 5 != 4 or any(case.named.get("op") is LAST for case in made):
        return made
    return [case._replace(named={**case.named, "algorithm": names[step.what % len(names)]}) for case in made]
