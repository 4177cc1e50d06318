"""Custom algorithms on a communicator: proved for its number of ranks, compared between ranks, and given to the core.

A communicator and the named operations of its session share one `CustomAlgorithms`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.core import _core


class CustomAlgorithms:
    """The custom algorithms that a communicator's calls and named operations may run.

    They are proved for the number of ranks, and identical on all ranks.
    """

    def __init__(self) -> None:
        self.table = _core.CustomAlgorithms()
        self._named: dict[tuple[str, str, int, int], tuple[algorithms.Algorithm, str]] = {}

    def agree(
        self, collective: str, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """Proves an algorithm for `size` ranks, and compares it between ranks. Collective.

        `rank` is this process's rank among them, None if it is not a member. `exchange` sends 16 bytes and returns
        those of every rank.

        Raises, on every rank, MismatchError if the ranks' algorithms differ, or the reason why it cannot run.
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
            _core.check_algorithm(collective, name)  # raises; its message lists the known algorithms
        if rank is not None:
            self.table.add(name, schedules[rank])

    def agree_on_default(
        self, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """Checks the algorithm that the option `algorithm` names, as `agree` does.

        The option is identical on all ranks. The algorithm is a built-in, or registered before this call.
        """
        try:
            if algorithms.is_builtin("allreduce", name):
                _core.check_algorithm("allreduce", name, size if size > 1 else 0)
            else:
                self.agree("allreduce", name, rank, size, exchange)
        except ValueError as error:
            raise ValueError(f"option algorithm (RINGCOMM_ALGORITHM): {error}") from error

    def named(self, collective: str, name: str, rank: int, size: int) -> str:
        """Returns an algorithm's name in named operations; it contains a digest, so that differences are detected.

        Not collective. Raises ValueError if the algorithm is unknown or not proved correct.
        """
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
        """Prepares all registered algorithms, before this rank joins and takes part in other ranks' operations."""
        for algorithm in algorithms.all_registered():
            with contextlib.suppress(Exception):  # an incorrect algorithm runs on no rank
                self.named(algorithm.collective, algorithm.name, rank, size)
