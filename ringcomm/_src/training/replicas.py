"""The replica check: whether the ranks that average gradients still have equal parameters.

A script that never broadcasts its parameters, or that changes one on a single rank, trains models that differ, without
an error. So ranks compare digests of their parameters (csrc/kernels/digest.hpp) at the second step, and every 1,000
steps after that (``RINGCOMM_REPLICA_CHECK``): one all-reduce of two numbers a parameter. Only if it finds a difference
do they exchange more, to name the ranks and the largest difference.

All ranks must enter a comparison at the same step. torch's optimizers ask for one in a flag of the agreement that
every step has: if any rank asks (in ``state_dict()``, too, which mostly one rank alone calls), all of them compare in
that step. Elsewhere ranks count their reductions (``SetLink::due``). A rank that has joined is left out: it
contributes the identity of the all-reduce, and has no row in what is exchanged.

Parameters that ranks do not hold in common are not compared: those of the methods in ``ringcomm._src.decentralized``
and ``ringcomm._src.torch.relaxed``, local variables and layers, buffers such as BatchNorm's running statistics; and a
process set compares its own ranks.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringcomm._src.arrays import arrays
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.base.ops import Max, Min, Op
from ringcomm._src.calls import calls
from ringcomm._src.config.option_values import replica_check
from ringcomm._src.core import _core
from ringcomm._src.named import named
from ringcomm._src.named.agreement import exchange
from ringcomm._src.named.graph_ops import Description, array_at
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.observe import accounts, timeline

logger = logging.getLogger("ringcomm")
Array = np.ndarray[Any, Any]

Read = Callable[[list[Array]], tuple[Sequence[str], Sequence[Array]]]
NAMED = 3  # parameters that a message names, with the largest difference of each


def every(process_set: ProcessSet) -> int:
    """Steps from one comparison to the next; 0: none."""
    return replica_check(process_set.session().config.replica_check)[1]


@dataclass
class Replicas:
    """The parameters of one optimizer on this rank, as far as comparisons of them have gone."""

    owner: str  # named in messages
    last_equal: int | None = None  # step after which they were equal; None: they never were
    reported: bool = False

    def compare(
        self,
        process_set: ProcessSet,
        name: str,
        step: int,
        names: Sequence[str],
        digests: Array,
        values: Callable[[int], Array],
    ) -> None:
        """Compares the state after `step` steps. Collective over the set; ranks that have joined are left out.

        Args:
            name: of the operations.
            names, digests: of the parameters.
            values: gives a parameter's elements, as an array of one dimension with arithmetic.

        Raises:
            MismatchError: on every rank, if parameters differ and the option says ``error``.
        """
        begun = time.monotonic_ns()
        differing = _differing(process_set, name, digests)
        details = _details(process_set, name, names, digests, values, differing) if differing else None
        mode = replica_check(process_set.session().config.replica_check)[0]
        accounts.count("replica check", "different" if details else "equal")
        timeline.note("replica check", begun, step=step, parameters=len(names), different=len(differing))
        if details is None:
            self.last_equal, self.reported = step, False
            return
        message = f"the replicas of {self.owner} differ after step {step}: {details.text}. {self._since()} {CAUSES}"
        if mode == "error":
            raise MismatchError(message, details.ranks)
        if not self.reported and details.first_rank == process_set.session().rank:
            logger.warning("%s", message)
        self.reported = True

    def _since(self) -> str:
        if self.last_equal is None:
            return "They have not been equal at any check."
        return f"They were equal after step {self.last_equal}, so this began in step {self.last_equal + 1} or later."


CAUSES = (
    "From then on each rank trains another model. Likely causes: the parameters were not broadcast before training "
    "(broadcast_parameters, broadcast_variables); a parameter was changed, or loaded, on some ranks only; or the "
    "optimizer's steps differ between ranks (its state, its learning rate, a nondeterministic kernel). "
    "RINGCOMM_REPLICA_CHECK=error makes this an error, RINGCOMM_REPLICA_CHECK=off ends these checks"
)


@dataclass(frozen=True)
class _Details:
    """The same on every rank."""

    text: str
    ranks: tuple[int, ...]  # that differ from most ranks, in any of the parameters that are named
    first_rank: int  # of those that compare


def _differing(process_set: ProcessSet, name: str, digests: Array) -> list[int]:
    """Indices of the parameters whose digests are not equal: the largest one is not the least one."""
    both = np.concatenate([digests, ~digests])  # the largest complement is that of the least
    most = _reduced(process_set, f"{name}.replicas", both, Max)
    return [int(i) for i in np.flatnonzero(most[: len(digests)] != ~most[len(digests) :])]


def _reduced(process_set: ProcessSet, name: str, values: Array, op: Op) -> Array:
    source = arrays.source(values)
    target = source.empty()
    found: Array = named.submit(process_set, calls.allreduce(source, target, op), name).wait()
    return found


def _details(
    process_set: ProcessSet,
    name: str,
    names: Sequence[str],
    digests: Array,
    values: Callable[[int], Array],
    differing: Sequence[int],
) -> _Details | None:
    """None if it is bits alone that differ: zeros of other signs, NaNs of other payloads."""
    nans = [int(np.isnan(values(i)).sum()) for i in differing]
    row = [*digests[list(differing)].view(np.int64).tolist(), *nans]
    rows = exchange(row, f"{name}.replicas.rows", process_set)
    texts: list[str] = []
    ranks: set[int] = set()
    passed = 0
    for place, i in enumerate(differing):
        if len(texts) == NAMED:
            break
        counts = {given[len(differing) + place] for given in rows.values()}
        largest = _spread(process_set, name, values(i)) if len(counts) == 1 else float("nan")
        if largest == 0:
            passed += 1
            continue
        others = _others({rank: given[place] for rank, given in rows.items()})
        ranks |= set(others)
        reference = min(set(rows) - set(others))
        texts.append(f"{names[i]!r} on {_ranks(others)} differs from rank {reference}'s by up to {largest:.3g}")
    if not texts:
        return None
    left = len(differing) - len(texts) - passed
    more = f", and {left} other parameters" if left else ""
    return _Details(f"{', '.join(texts)}{more}", tuple(sorted(ranks)), min(rows))


def _spread(process_set: ProcessSet, name: str, values: Array) -> float:
    """The largest difference of an element between two ranks. NaNs are in the same number everywhere, and not looked
    at."""
    high = _reduced(process_set, f"{name}.replicas.high", values, Max)
    low = _reduced(process_set, f"{name}.replicas.low", values, Min)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where((high == low) | np.isnan(high), 0, high - low)
    return float(apart.max(initial=0))


def _others(digests: dict[int, int]) -> list[int]:
    """Ranks that have not what most ranks have; if no value has the most, not what the lowest of them has."""
    counted = Counter(digests[rank] for rank in sorted(digests))
    usual = counted.most_common(1)[0][0]
    return [rank for rank in sorted(digests) if digests[rank] != usual]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def digests_of(parameters: Sequence[Array]) -> Array:
    """Digests of arrays in this process's memory; each is read once."""
    whole = [np.ascontiguousarray(one) for one in parameters]
    return digests_at([(one.ctypes.data, one.nbytes) for one in whole])


def digests_at(places: Sequence[tuple[int, int]]) -> Array:
    """Digests of memory of this process, given as (address, bytes)."""
    return np.frombuffer(_core.digests([a for a, _ in places], [n for _, n in places]), np.uint64)


def with_arithmetic(array: Array) -> Array:
    """Its elements in a dtype that holds them and has differences: float32 or float64."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    narrow = flat.dtype.itemsize <= 2 or flat.dtype == np.float32
    return flat.astype(np.float32 if narrow else np.float64)


def replicas_of(process_set: ProcessSet, name: str, owner: str) -> Replicas:
    """The state of the optimizer of this name, kept as long as the session."""
    known: dict[tuple[int, str], Replicas] = process_set.session().extras.setdefault("replicas", {})
    return known.setdefault((process_set.set_id(), name), Replicas(owner))


@dataclass(frozen=True)
class CountedCheck:
    """Comparisons where no agreement asks for them: every rank counts its reductions, of which there are equally many.

    The first run is before the first step, the second one sees what that step, and a broadcast after it, have left.
    """

    process_set: ProcessSet
    name: str  # of the reduction, and of the parameters' number
    owner: str
    every: int  # steps

    def due(self) -> int:
        """Counts a run: its number if ranks compare in it, else 0."""
        return self.process_set.link.due(self.name, self.every)

    def compare(self, run: int, names: Sequence[str], digests: Array, values: Callable[[int], Array]) -> None:
        """Collective. As :meth:`Replicas.compare`."""
        replicas = replicas_of(self.process_set, self.name, self.owner)
        replicas.compare(self.process_set, self.name, run - 1, names, digests, values)

    def compare_arrays(self, run: int, names: Sequence[str], parameters: Sequence[Array]) -> None:
        self.compare(run, names, digests_of(parameters), lambda index: with_arithmetic(parameters[index]))

    def in_program(self, dtypes: Sequence[str], read: Read) -> Description:
        """A site with inputs of these dtypes, of which, whenever it is due, `read` makes names and arrays."""
        look = _Look(self, read)
        return Description(self.process_set, calls.ALLREDUCE, (self.name,), tuple(dtypes), look=look, every=self.every)


def compare_now(process_set: ProcessSet, name: str, names: Sequence[str], parameters: Sequence[Array]) -> None:
    """Compares arrays, for each binding's ``check_replicas``. Collective; the calls of a name count as steps."""
    if parameters and process_set.size() > 1:
        check = CountedCheck(process_set, f"check_replicas.{name}", repr(name), 1)
        check.compare_arrays((check.due() or 1) + 1, names, parameters)


@dataclass(frozen=True)
class _Look:
    """The callback of a site. It is not made while a program is traced: TensorFlow would make it anew."""

    check: CountedCheck
    read: Read

    def __call__(self, run: int, given: list[tuple[int, int, tuple[int, ...]]]) -> None:
        self.check.compare_arrays(run, *self.read([array_at(*one) for one in given]))


def with_names(names: Sequence[str], arrays: list[Array]) -> tuple[Sequence[str], list[Array]]:
    """A `Read` for inputs that are the parameters; bind the names."""
    return names, arrays
