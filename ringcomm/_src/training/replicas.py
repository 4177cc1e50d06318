"""The replica check: compares parameters between the ranks that average gradients.

A script that never broadcasts its parameters, or changes a parameter on a single rank, trains
different models without an error. So ranks compare digests of their parameters
(csrc/kernels/digest.hpp) at the second step, and every 1,000 steps after that
(``RINGCOMM_REPLICA_CHECK``). The comparison is one all-reduce of two numbers per parameter. Only if
it finds a difference do the ranks exchange more data, to name the ranks and the largest difference.

All ranks must enter a comparison at the same step. PyTorch optimizers request it in a flag that
ranks exchange at the end of every step (`plans.Flags`): if any rank requests it, all ranks compare
in that step. ``state_dict()`` requests it too, often on a single rank. In other frameworks,
ranks count their reductions (``SetLink::due``). A rank that has joined is excluded: it contributes
the identity element to the all-reduce, and has no row in the exchange.

Parameters that may differ between ranks are not compared: those of the methods in
``ringcomm._src.decentralized`` and ``ringcomm._src.torch.relaxed``, local variables and layers, and
buffers (BatchNorm's running statistics). A process set compares its own ranks only.
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
MAX_NAMED = 3  # number of parameters that a message names, with the largest difference of each


def every(process_set: ProcessSet) -> int:
    """Returns the number of steps from one comparison to the next; 0: no comparisons."""
    return replica_check(process_set.session().config.replica_check)[1]


@dataclass
class Replicas:
    """State of the comparisons of one optimizer's parameters on this rank."""

    owner: str  # named in messages
    last_equal: int | None = None  # last step after which the parameters were equal; None: never
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
        """Compares the state after `step` steps. Collective, except for joined ranks.

        Parameters
        ----------
        name : str
            Name of the operations.
        names : Sequence[str]
            Names of the parameters.
        digests : Array
            Their digests, as uint64.
        values : Callable[[int], Array]
            Returns a parameter's elements by its index, as a one-dimensional array of a dtype with
            arithmetic.

        Raises
        ------
        MismatchError
            On every rank, if parameters differ and the option is ``error``.
        """
        start = time.monotonic_ns()
        differing = _differing(process_set, name, digests)
        details = _details(process_set, name, names, digests, values, differing) if differing else None
        mode = replica_check(process_set.session().config.replica_check)[0]
        accounts.count("replica check", "different" if details else "equal")
        timeline.note("replica check", start, step=step, parameters=len(names), different=len(differing))
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
    "From then on, each rank trains a different model. Likely causes: the parameters were not broadcast before "
    "training (broadcast_parameters, broadcast_variables); a parameter was changed, or loaded, on some ranks only; or "
    "the optimizer's steps differ between ranks (its state, its learning rate, a nondeterministic kernel). "
    "RINGCOMM_REPLICA_CHECK=error makes this an error, RINGCOMM_REPLICA_CHECK=off disables these checks"
)


@dataclass(frozen=True)
class _Details:
    """A difference between replicas, identical on all ranks."""

    text: str
    ranks: tuple[int, ...]  # ranks that differ from most ranks in a named parameter
    first_rank: int  # lowest rank that takes part in the comparison


def _differing(process_set: ProcessSet, name: str, digests: Array) -> list[int]:
    """Returns the indices of digests that differ: their maximum and minimum are not equal."""
    both = np.concatenate([digests, ~digests])  # the maximum of the complements is the complement of the minimum
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
    """Returns the details; None if only signs of zeros or payloads of NaNs differ."""
    nans = [int(np.isnan(values(i)).sum()) for i in differing]
    row = [*digests[list(differing)].view(np.int64).tolist(), *nans]
    rows = exchange(row, f"{name}.replicas.rows", process_set)
    texts: list[str] = []
    ranks: set[int] = set()
    passed = 0
    for place, i in enumerate(differing):
        if len(texts) == MAX_NAMED:
            break
        counts = {given[len(differing) + place] for given in rows.values()}
        largest = _largest_difference(process_set, name, values(i)) if len(counts) == 1 else float("nan")
        if largest == 0:
            passed += 1
            continue
        others = _minority({rank: given[place] for rank, given in rows.items()})
        ranks |= set(others)
        reference = min(set(rows) - set(others))
        texts.append(f"{names[i]!r} on {_ranks(others)} differs from rank {reference}'s by up to {largest:.3g}")
    if not texts:
        return None
    left = len(differing) - len(texts) - passed
    more = f", and {left} other parameter{'s' * (left > 1)}" if left else ""
    return _Details(f"{', '.join(texts)}{more}", tuple(sorted(ranks)), min(rows))


def _largest_difference(process_set: ProcessSet, name: str, values: Array) -> float:
    """Returns the largest difference of an element between two ranks.

    NaNs are ignored: their number is identical on all ranks.
    """
    high = _reduced(process_set, f"{name}.replicas.high", values, Max)
    low = _reduced(process_set, f"{name}.replicas.low", values, Min)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where((high == low) | np.isnan(high), 0, high - low)
    return float(difference.max(initial=0))


def _minority(digests: dict[int, int]) -> list[int]:
    """Returns the ranks without the most common digest. In a tie, the lowest rank's counts."""
    counted = Counter(digests[rank] for rank in sorted(digests))
    majority = counted.most_common(1)[0][0]
    return [rank for rank in sorted(digests) if digests[rank] != majority]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def digests_of(parameters: Sequence[Array]) -> Array:
    """Returns the digests of arrays in this process's memory; each array is read once."""
    contiguous = [np.ascontiguousarray(array) for array in parameters]
    return digests_at([(array.ctypes.data, array.nbytes) for array in contiguous])


def digests_at(ranges: Sequence[tuple[int, int]]) -> Array:
    """Returns the digests of ranges of this process's memory, given as (address, bytes)."""
    return np.frombuffer(_core.digests([a for a, _ in ranges], [n for _, n in ranges]), np.uint64)


def with_arithmetic(array: Array) -> Array:
    """Returns the elements as float32 or float64, in which differences can be computed."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    narrow = flat.dtype.itemsize <= 2 or flat.dtype == np.float32
    return flat.astype(np.float32 if narrow else np.float64)


def replicas_of(process_set: ProcessSet, name: str, owner: str) -> Replicas:
    """Returns the state of the optimizer with this name. The session keeps the state."""
    known: dict[tuple[int, str], Replicas] = process_set.session().extras.setdefault("replicas", {})
    return known.setdefault((process_set.set_id(), name), Replicas(owner))


@dataclass(frozen=True)
class CountedCheck:
    """Comparisons without flags: ranks count reductions, which all ranks run equally often.

    The first run of the reduction is before the first step. The second run sees the parameters
    after the first step, and after a broadcast that may follow this step.
    """

    process_set: ProcessSet
    name: str  # identifies the reduction and the number of parameters
    owner: str
    every: int  # steps from one comparison to the next

    def due(self) -> int:
        """Counts a run. Returns its number if ranks compare in it, else 0."""
        return self.process_set.link.due(self.name, self.every)

    def compare(self, run: int, names: Sequence[str], digests: Array, values: Callable[[int], Array]) -> None:
        """Compares as :meth:`Replicas.compare` does. Collective."""
        replicas = replicas_of(self.process_set, self.name, self.owner)
        replicas.compare(self.process_set, self.name, run - 1, names, digests, values)

    def compare_arrays(self, run: int, names: Sequence[str], parameters: Sequence[Array]) -> None:
        self.compare(run, names, digests_of(parameters), lambda index: with_arithmetic(parameters[index]))

    def graph_operation(self, dtypes: Sequence[str], read: Read) -> Description:
        """Returns a graph operation that compares its inputs whenever a comparison is due.

        `read` converts the inputs, of these dtypes, to names and arrays.
        """
        look = _GraphCallback(self, read)
        return Description(self.process_set, calls.ALLREDUCE, (self.name,), tuple(dtypes), look=look, every=self.every)


def compare_now(process_set: ProcessSet, name: str, names: Sequence[str], parameters: Sequence[Array]) -> None:
    """Compares arrays, for ``check_replicas``. Collective. Calls with one name count as steps."""
    if parameters and process_set.size() > 1:
        check = CountedCheck(process_set, f"check_replicas.{name}", repr(name), 1)
        check.compare_arrays((check.due() or 1) + 1, names, parameters)


@dataclass(frozen=True)
class _GraphCallback:
    """The callback of a graph operation. TensorFlow would trace a local function anew each time."""

    check: CountedCheck
    read: Read

    def __call__(self, run: int, given: list[tuple[int, int, tuple[int, ...]]]) -> None:
        self.check.compare_arrays(run, *self.read([array_at(*place) for place in given]))


def with_names(names: Sequence[str], arrays: list[Array]) -> tuple[Sequence[str], list[Array]]:
    """A `Read` for inputs that are the parameters; bind `names` with functools.partial."""
    return names, arrays
