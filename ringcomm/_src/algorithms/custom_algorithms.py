"""Users' algorithms on a communicator: proved for its number of ranks, agreed between ranks, and handed to the core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.core import _core


class CustomAlgorithms:
    """The registered algorithms that a communicator's calls, and named operations beside them, may run: proved for
    their number of ranks, and the same on all of them."""

    def __init__(self) -> None:
        self.table = _core.CustomAlgorithms()
        self._named: dict[tuple[str, str, int, int], tuple[algorithms.Algorithm, str]] = {}

    def agree(
        self, collective: str, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """Proves an algorithm for groups of `size`, of which this process is `rank` (None: in none), and compares it
        between ranks. Collective: `exchange` gives every rank's 16 bytes.

        Raises, on every rank: MismatchError, or why it cannot run.
        """
        algorithm, error, schedules = algorithms.registered(collective, name), None, []
        mine = b"unregistered".ljust(16)
        if algorithm is not None:
            try:
                schedules = algorithm.schedules(size)
                mine = _core.digest(schedules)
            except Exception as problem:
                error, mine = problem, b"wrong".ljust(16)
        digests = exchange(mine)
        others = tuple(r for r, one in enumerate(digests) if bytes(one) != bytes(digests[0]))
        if others:
            raise MismatchError(
                f"{collective} algorithm {name!r} differs between ranks: that of rank{'s' * (len(others) > 1)} "
                f"{', '.join(map(str, others))} is not rank 0's; register the same on all ranks",
                others,
            )
        if error is not None:
            raise error
        if algorithm is None:
            _core.check_algorithm(collective, name)  # says what is known
        if rank is not None:
            self.table.add(name, schedules[rank])

    def agree_on_default(
        self, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """The same of the option `algorithm`, all ranks' alike: built in, or registered before this."""
        try:
            if algorithms.is_builtin("allreduce", name):
                _core.check_algorithm("allreduce", name, size if size > 1 else 0)
            else:
                self.agree("allreduce", name, rank, size, exchange)
        except ValueError as error:
            raise ValueError(f"option algorithm (RINGCOMM_ALGORITHM): {error}") from error

    def named(self, collective: str, name: str, rank: int, size: int) -> str:
        """What a named operation calls it, so that ranks which register different ones notice. Not collective.
        Raises ValueError: there is none of this name, or it is wrong."""
        algorithm = algorithms.registered(collective, name)
        if algorithm is None:
            _core.check_algorithm(collective, name, size)
            return name
        known = self._named.get((collective, name, rank, size))
        if known is None or known[0] is not algorithm:
            schedules = algorithm.schedules(size)
            known = algorithm, f"{name}#{_core.digest(schedules).hex()[:16]}"
            self.table.add(known[1], schedules[rank])
            self._named[collective, name, rank, size] = known
        return known[1]

    def prepare(self, rank: int, size: int) -> None:
        """Before this rank takes part in what others ask for."""
        for algorithm in algorithms.all_registered():
            with contextlib.suppress(Exception):  # a wrong one runs nowhere
                self.named(algorithm.collective, algorithm.name, rank, size)
