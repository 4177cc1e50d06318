"""Custom algorithms of a communicator.

Before an algorithm runs, it is proved for the number of ranks, compared between ranks, and passed
to the core. A communicator and the named operations of its session share one `CustomAlgorithms`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.core import _core


class CustomAlgorithms:
    """The custom algorithms that a communicator's calls and named operations may run.

    Each is proved for the number of ranks that run it, and is identical on all of them.
    """

    def __init__(self) -> None:
        self.table = _core.CustomAlgorithms()
        self._cached_names: dict[tuple[str, str, int, int], tuple[algorithms.Algorithm, str]] = {}

    def agree(
        self, collective: str, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """Proves an algorithm for `size` ranks, and compares it between ranks. Collective.

        `rank` is this process's rank among the `size` ranks; None if it is not one of them.
        `exchange` sends 16 bytes and returns those of every rank.

        If the ranks' algorithms differ, raises MismatchError on every rank. If the algorithm cannot
        run, raises the reason on every rank.
        """
        algorithm, error, schedules = algorithms.registered(collective, name), None, []
        own_digest = b"unregistered".ljust(16)
        if algorithm is not None:
            try:
                schedules = algorithm.schedules(size)
                own_digest = _core.digest(schedules)
            except Exception as problem:
                error, own_digest = problem, b"wrong".ljust(16)
        digests = exchange(own_digest)
        differing = tuple(other for other, digest in enumerate(digests) if bytes(digest) != bytes(digests[0]))
        if differing:
            raise MismatchError(
                f"{collective} algorithm {name!r} differs between ranks: on rank{'s' * (len(differing) > 1)} "
                f"{', '.join(map(str, differing))} it is not that of rank 0. Register the same algorithm on all ranks",
                differing,
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

        The option is identical on all ranks. The algorithm is a built-in, or registered before this
        call.
        """
        try:
            if algorithms.is_builtin("allreduce", name):
                _core.check_algorithm("allreduce", name, size if size > 1 else 0)
            else:
                self.agree("allreduce", name, rank, size, exchange)
        except ValueError as error:
            raise ValueError(f"option algorithm (RINGCOMM_ALGORITHM): {error}") from error

    def name_with_digest(self, collective: str, name: str, rank: int, size: int) -> str:
        """Returns the name by which named operations request an algorithm.

        A custom algorithm's name gets a digest of its schedules, so that ranks detect a difference
        when they compare names. Not collective. Raises ValueError if the algorithm is unknown or
        not proved correct.
        """
        algorithm = algorithms.registered(collective, name)
        if algorithm is None:
            _core.check_algorithm(collective, name, size)
            return name
        cached = self._cached_names.get((collective, name, rank, size))
        if cached is None or cached[0] is not algorithm:
            schedules = algorithm.schedules(size)
            cached = algorithm, f"{name}#{_core.digest(schedules).hex()[:16]}"
            self.table.add(cached[1], schedules[rank])
            self._cached_names[collective, name, rank, size] = cached
        return cached[1]

    def prepare(self, rank: int, size: int) -> None:
        """Prepares all registered algorithms: a joined rank may have to run any of them."""
        for algorithm in algorithms.all_registered():
            with contextlib.suppress(Exception):  # an incorrect algorithm runs on no rank
                self.name_with_digest(algorithm.collective, algorithm.name, rank, size)
