"""Ranks as threads of this process, for tests and for teaching without MPI."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ringcomm._src.base import arguments, process
from ringcomm._src.base.errors import PeerLostError, RankLeftError
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.config.config import Config
from ringcomm._src.platform.threads_link import ThreadsLink, ThreadsWorld

__all__ = ["run"]

Result = TypeVar("Result")


def run(size: int, fn: Callable[..., Result], *args: Any, config: Config | None = None) -> list[Result]:
    """Runs ``fn(comm, *args)`` on ``size`` ranks, each a thread with its own communicator.

    Parameters
    ----------
    size : int
        Number of ranks, at least 1.
    fn : Callable[..., Result]
        The function that every rank calls. Its first argument is this rank's
        :class:`ringcomm.Communicator`, which `run` closes.
    *args : Any
        Further arguments of `fn`, identical on all ranks.
    config : Config | None
        Options; ``Config(shared_memory="off")`` makes the ranks exchange messages instead of
        sharing memory.

    Returns
    -------
    list[Result]
        The results of ``fn``, by rank.

    Raises
    ------
    BaseException
        The first exception that is not a consequence of another rank's failure. Ranks that wait for
        a failed rank get PeerLostError.
    ValueError
        `size` is less than 1.

    Examples
    --------
    >>> def program(comm):
    ...     return comm.allreduce(np.full(2, comm.rank)).tolist()
    >>> ringcomm.threads.run(3, program)
    [[3, 3], [3, 3], [3, 3]]
    """
    if (size := arguments.integer("threads.run: size", size)) < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    world = ThreadsWorld(size)
    results: list[Any] = [None] * size
    failures: list[tuple[float, BaseException]] = []

    def rank_main(rank: int) -> None:
        comm = None
        process.become_rank_thread(rank, size)
        try:
            comm = Communicator(ThreadsLink(world, rank), config)
            results[rank] = fn(comm, *args)
            comm.close()
        except BaseException as error:
            failures.append((time.monotonic(), error))
            if comm is not None:
                comm._abandon(f"rank {rank} ended with {type(error).__name__}: {error}")
            world.kill(rank)

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        for rank in range(size):
            world.kill(rank)
        raise
    if failures:
        consequences = (PeerLostError, RankLeftError)  # consequences of another rank's failure
        raise min(failures, key=lambda failure: (isinstance(failure[1], consequences), failure[0]))[1]
    return results
