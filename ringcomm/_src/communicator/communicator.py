"""A group of ranks: what its calls stand on, who is in it, and how it ends. The calls are in ordered.py, counted.py
and background.py."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import numpy as np

from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.algorithms import tuning
from ringcomm._src.algorithms.custom_algorithms import CustomAlgorithms
from ringcomm._src.arrays import numpy_memory, shared
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import arguments, process
from ringcomm._src.base.errors import HorovodInternalError, RingcommError, ShutDownError
from ringcomm._src.base.hints import hint_at_names
from ringcomm._src.base.version import __version__
from ringcomm._src.communicator.background import BackgroundCalls
from ringcomm._src.communicator.neighbours import Graph, Neighbours
from ringcomm._src.communicator.persistent import PersistentCalls
from ringcomm._src.communicator.point_to_point import PointToPointCalls, open_messages, refuse_leftovers, tell_leftovers
from ringcomm._src.communicator.vector_collectives import VectorCollectives
from ringcomm._src.config import config as configuration
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request
from ringcomm._src.observe import accounts
from ringcomm._src.platform import binding
from ringcomm._src.platform.launchers import check_world
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.mpi_library import initialized
from ringcomm._src.platform.mpi_link import MpiLink, processes
from ringcomm._src.process import exits, guardian

SPIN_NS = 100_000  # that an ordered call keeps its core while it waits, where every rank has one
ORDERED_SLOT, QUEUED_SLOT = 0, 1  # of the arenas; further ones are the engine's


@hint_at_names
class Communicator(VectorCollectives, BackgroundCalls, PersistentCalls, PointToPointCalls):
    """A group of ranks, the collectives between them, and messages from one to another.

    Every rank makes the same calls in the same order, as in MPI. Two threads of a rank must not call at the same time
    (the second gets a RuntimeError); the non-blocking ``i...`` forms are an order of their own.

    Arrays are NumPy arrays, anything with the buffer protocol, DLPack or ``__array_interface__``, torch tensors, or
    arrays of GPUs (``__cuda_array_interface__`` or DLPack; docs/gpu.md); results are torch tensors for torch tensors,
    on a GPU CuPy's arrays or :class:`ringcomm.DeviceArray`, else NumPy arrays. Strided arrays of the host are copied.
    Reductions work on float16, bfloat16, float32, float64, int8 to int64, uint8 to uint64, bool, complex64, complex128
    and pairs of a value and an index, each with its ops (:class:`ringcomm.Op`); the other collectives move any dtype.
    Reductions give equal bits on all ranks.

    ``close()`` it, or use ``with``: closing is collective, so Python cannot do it for a communicator that is dropped,
    which keeps its memory and two file descriptors until the process ends.

    Args:
        comm: an mpi4py intracommunicator, duplicated privately; None: ``MPI.COMM_WORLD``.
        config: options; None: from the environment. Rank 0's are used by all.

    Raises (besides what the calls document), on every rank:
        ringcomm.RingcommError: the launcher has started more ranks than MPI knows.
        ringcomm.MismatchError: ranks disagree on the call, dtype, shape, op, root, algorithm or name. Nothing has
            moved; go on.
        ringcomm.RankLeftError: a rank has closed the communicator or ended.
        ringcomm.PeerLostError: a rank died or MPI failed; every later call raises it too.
    """

    def __init__(self, comm: Any = None, config: configuration.Config | None = None) -> None:
        process.check_process()
        if comm is None:
            comm = initialized().COMM_WORLD
        mine = configuration.from_environment() if config is None else config
        if mine.check_launcher and not isinstance(comm, Link):
            check_world()
        binding.shorten_time_slices(mine.time_slice)
        link = comm if isinstance(comm, Link) else MpiLink(comm, threads=mine.mpi_threads)
        hellos = link.exchange((__version__, mine, guardian.hello(), tuning.recall(link, mine), binding.allowed()))
        versions = [version for version, *_ in hellos]
        if len(set(versions)) > 1:
            raise RingcommError(
                f"ranks run different versions of ringcomm: {', '.join(versions)} (by rank); install one everywhere"
            )
        self._link = link
        self.rank, self.size = link.rank, link.size
        self.config = tuning.settle(link, mine.agreed([one for _, one, *_ in hellos], link.rank), hellos[0][3])
        self._cores = self._bind([hellos[rank][4] for rank in link.topology.host])
        self.own = CustomAlgorithms()
        if self.config.algorithm:
            self.own.agree_on_default(self.config.algorithm, self.rank, self.size, link.exchange)
        self._node, self.shared_memory_reason = self._share_memory()
        self._open_channels()
        exits.watch(self)
        if isinstance(link, MpiLink):
            link.note_many_open()
            configuration.note_unknown(os.environ, self.rank)
        elif self.rank == 0:
            configuration.note_unknown(os.environ)
        neighbours = {rank: hellos[rank][2] for rank in link.topology.host}
        guardian.watch(self.rank, self.size, neighbours, self.config.survive)

    def _bind(self, cores: list[binding.Cores]) -> int:
        """Gives each rank of this host its share of `cores`, which each may run on. Returns how many each has."""
        if self._link.is_whole_job and self.config.bind:
            binding.bind(cores, self.local_rank)
        return binding.cores_of_each(cores)

    def _share_memory(self) -> tuple[_core.Node | None, str]:
        if self.size == 1:
            return None, "one rank shares with nobody"
        if self.config.shared_memory == "off":
            return None, "switched off"
        node, why = self._link.share_memory(compared=(ORDERED_SLOT, QUEUED_SLOT))
        if node is None and self.config.shared_memory == "on":
            raise RingcommError(f"shared memory is required (shared_memory=on) but cannot be had: {why}")
        return node, why

    def _open_channels(self) -> None:
        link, peers = self._link, range(self.size)
        self._ledger = accounts.Ledger(3, self.config.stats)
        if self.config.stats and isinstance(link, MpiLink):
            accounts.report_at_end()
        ordered, queued, messages = self._ledger.accounts
        config = self.config.channel(link.topology.host_of, self.own.table, ordered)
        if self._cores > 0:
            config = config._replace(spin_ns=SPIN_NS)
        self._channel = _core.Channel(
            link.ordered, peers, self.rank, 0, link.tags, self._node, ORDERED_SLOT, config, link.worker
        )
        config = config._replace(account=queued)
        self._queued = _core.Channel(link.queued, peers, self.rank, 0, link.tags, self._node, QUEUED_SLOT, config)
        self._queue = _core.Queue(link.worker, self._queued)
        self._messages = open_messages(link, self._node, config.spin_ns, self._cores > 1, self.config, messages)
        for channel in (self._channel, self._queued, self._messages):
            channel.watch(processes, link.rank_of)
        self._last: _core.Operation | None = None
        self._can_cache = True
        self._unusable: Exception | None = None
        self._agreed: set[tuple[str, str]] = set()  # collective, algorithm: may run

    # ---- who and where -----------------------------------------------------------------------------------------------
    @property
    def local_rank(self) -> int:
        """This rank's number among the communicator's ranks on its host."""
        return self._link.topology.local_rank

    @property
    def local_size(self) -> int:
        """The communicator's ranks on this host."""
        return self._link.topology.local_size

    @property
    def cross_rank(self) -> int:
        """This host's number among the hosts that have a rank of this local_rank."""
        return self._link.topology.cross_rank

    @property
    def cross_size(self) -> int:
        """Hosts that have a rank of this local_rank."""
        return self._link.topology.cross_size

    @property
    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        return self._link.topology.is_homogeneous

    @property
    def shared_memory(self) -> bool:
        """Whether data goes through memory that the ranks share; ``shared_memory_reason`` says why not."""
        return self._node is not None

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32", device: str | int | None = None) -> Any:
        """An uninitialised array in memory that the ranks of this host share: an all-reduce in place of such arrays
        copies nothing. Not collective; ordinary memory where none can be shared (``shared_memory_reason``). Or, with
        ``device``, one in a GPU's memory.

        Args:
            shape: of the array, the same as for ``numpy.empty``.
            dtype: what NumPy takes for a dtype, without Python objects.
            device: None or "cpu": shared memory; "cuda": this rank's GPU, by its local rank; "cuda:1" or 1: that one.

        Returns:
            A NumPy array; on a GPU CuPy's array if CuPy is installed, else a :class:`ringcomm.DeviceArray`.

        Raises:
            ringcomm.UnsupportedError: a GPU is asked for, and there is no driver.
            ValueError: there is no such device.

        A forked child has a copy of its own of shared memory.
        """
        if device is None or device == "cpu":
            return shared.empty(self._node, shape, dtype)
        from ringcomm._src.arrays.device import array, devices

        return array.empty(shape, dtype, devices.of_name(device, self.local_rank))

    def shared_arrays(self) -> AbstractContextManager[None]:
        """Inside ``with comm.shared_arrays():`` the arrays of 64 KB and more that NumPy makes, whoever asks it to, lie
        in memory that the ranks of this host share, as those of ``empty`` do: they are reduced in place without a copy.

        It holds for this thread, or asyncio task, as NumPy's memory handlers do (NEP 49); arrays live on after it.
        Ordinary memory where none can be shared (``shared_memory_reason``) or no more is to be had. A forked child has
        a copy of its own.
        """
        return numpy_memory.shared_arrays(self._node)

    def stats(self, reset: bool = False) -> accounts.Stats:
        """What this rank has moved by ordered calls, non-blocking and prepared ones, and messages, also after
        ``close()``. Not collective. Named operations are in :func:`ringcomm.stats`.

        Args:
            reset: count from zero from now on.
        """
        return self._ledger.stats(reset)

    def neighbours(self, graph: Graph) -> Neighbours:
        """Exchanges with some ranks only. Not collective.

        Args:
            graph: "ring" (the ranks before and after), "exponential" (rank + 1, 2, 4, ... modulo the size), "hypercube"
                (ranks that differ in one bit), or the ranks that each rank sends to: a list of lists, the same on every
                rank.

        Raises:
            ValueError: there is no such graph of so many ranks.
        """
        return Neighbours(self, graph)

    # ---- life --------------------------------------------------------------------------------------------------------
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """A new communicator of the ranks that give the same ``color``, ordered by ``key``, then rank. Collective.

        ``color`` is a non-negative integer, or None to be in none (the result is then None), as ``MPI.UNDEFINED`` is
        for mpi4py. ``key`` is an integer.

        Raises:
            TypeError, ValueError: ``color`` or ``key`` is something else.
        """
        self._require_usable()
        if color is not None and (color := arguments.integer("split: color", color)) < 0:
            raise ValueError(f"split: color must be 0 or more, not {color}; None, to be in no new communicator")
        link = self._link.split(color, arguments.integer("split: key", key))
        return None if link is None else Communicator(link, self.config)

    def close(self) -> None:
        """Ends the communicator. Collective: every rank calls it, with no call under way. Closing twice does nothing.

        A rank that waits in a non-blocking call meanwhile gets :exc:`ringcomm.RankLeftError`.

        Raises:
            ringcomm.MismatchError: another rank makes a different call instead. This rank has then left.
        """
        if self._unusable is not None:
            return
        if self._last is not None:
            self._last.wait()  # ends also if a peer is in close() already
        self._queue.close()
        self._queued.leave()  # ends the non-blocking calls in which peers still wait
        try:
            self.barrier(name="close()")
        except HorovodInternalError:
            self._leave("this communicator is closed")
            raise
        left_over = self._messages.close(self._sent_here())
        self._disable(ShutDownError("this communicator is closed"))
        self._ledger.end()
        del self._channel, self._queued, self._queue, self._messages
        self._link.free()
        exits.unwatch(self)
        refuse_leftovers(left_over, self.rank)

    def _sent_here(self) -> list[int]:
        """Messages that each rank has sent to this one by a transport. Collective where there is one."""
        sent = self._messages.sent()
        return list(self.alltoall(np.array(sent, np.int64), name="close()")) if sent else []

    def _leave(self, why: str) -> None:
        """Tells the peers that this rank makes no more calls. Not collective; MPI's resources stay until MPI ends."""
        if self._unusable is None:
            self._disable(ShutDownError(why))
            self._queue.close()
            self._channel.leave()
            self._queued.leave()
            tell_leftovers(self._messages.leave(), self.rank)
            self._ledger.end()

    def _abandon(self, why: str) -> None:
        """After a failure of this rank, when the others will not come to close(): frees what needs no peer."""
        self._leave(why)
        exits.unwatch(self)

    def _disable(self, error: Exception) -> None:
        self._unusable = error
        self._can_cache = False

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()  # otherwise peers may be anywhere: no collective call could end

    def __repr__(self) -> str:
        return f"<ringcomm.Communicator: rank {self.rank} of {self.size}>"

    # ---- how calls run -----------------------------------------------------------------------------------------------
    def _require_usable(self) -> None:
        if self._unusable is not None:
            raise self._unusable

    def _run(self, request: Request) -> None:
        self._prepare(request)
        self._channel.run(request)

    def _submit(self, request: Request) -> Handle[Any]:
        self._prepare(request)
        self._last = self._queue.submit(request)
        return Handle([self._last], request.finish, request.name or _core.COLLECTIVES[request.collective])

    def _prepare(self, request: Request) -> None:
        """An algorithm must be known before it runs for the first time: all ranks agree on users' own."""
        if self._unusable is not None:
            raise self._unusable
        if name := request.algorithm:
            collective = _core.COLLECTIVES[request.collective]
            if (collective, name) in self._agreed:
                return
            if not algorithms.is_builtin(collective, name):
                self.own.agree(collective, name, self.rank, self.size, self._digests)
            self._agreed.add((collective, name))

    def _digests(self, mine: bytes) -> list[bytes]:
        rows = self.allgather(np.frombuffer(mine, np.int64)[None, :], [1] * self.size, name="algorithm")
        return [row.tobytes() for row in rows]
