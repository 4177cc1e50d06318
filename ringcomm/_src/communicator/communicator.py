"""The communicator: its channels, its ranks and hosts, and how it opens and closes.

Its calls are in ordered.py, vector_collectives.py, background.py, persistent.py and
point_to_point.py.
"""

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
from ringcomm._src.base.hints import add_mpi4py_hints
from ringcomm._src.base.version import __version__
from ringcomm._src.communicator.background import BackgroundCalls
from ringcomm._src.communicator.neighbours import Graph, Neighbours
from ringcomm._src.communicator.persistent import PersistentCalls
from ringcomm._src.communicator.point_to_point import (
    PointToPointCalls,
    open_messages,
    print_leftovers,
    require_no_leftovers,
)
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

SPIN_NS = 100_000  # ns that an ordered call spins while it waits, if every rank has its own core
ORDERED_SLOT, QUEUED_SLOT = 0, 1  # slots of the arenas; the engine uses further slots


@add_mpi4py_hints
class Communicator(VectorCollectives, BackgroundCalls, PersistentCalls, PointToPointCalls):
    """A group of ranks, with the collectives between them and point-to-point messages.

    Every rank makes the same calls in the same order, as in MPI. Two threads of a rank must not
    call at the same time: the second thread gets a RuntimeError. The order of the non-blocking
    calls (``iallreduce`` and so on) is separate from that of the blocking calls.

    Arrays are NumPy arrays, objects with the buffer protocol, DLPack or ``__array_interface__``,
    torch tensors, or arrays of GPUs (``__cuda_array_interface__`` or DLPack; docs/gpu.md). Arrays
    that are not C-contiguous are copied. The type of the result depends on the input:

    - a torch tensor: a torch tensor;
    - another array of a GPU: a CuPy array, or a :class:`ringcomm.DeviceArray` without CuPy;
    - any other input: a NumPy array.

    Reductions work on float16, bfloat16, float32, float64, int8 to int64, uint8 to uint64, bool,
    complex64, complex128 and pairs of a value and an index, each with its ops
    (:class:`ringcomm.Op`). The other collectives move any dtype. Reductions give bitwise identical
    results on all ranks.

    Call ``close()``, or use ``with``. Closing is collective, so garbage collection cannot close a
    communicator. An unclosed communicator keeps its memory and two file descriptors until the
    process ends.

    Parameters
    ----------
    comm
        An mpi4py intracommunicator, which is duplicated; None: ``MPI.COMM_WORLD``.
    config : Config | None
        Options; None: from the environment. All ranks use the options of rank 0, except options
        that each rank keeps (:class:`ringcomm.Config`).

    Raises
    ------
    ringcomm.RingcommError
        The launcher has started more ranks than ``MPI.COMM_WORLD`` has, or ranks run different
        versions of ringcomm.
    ringcomm.MismatchError
        In a call: ranks disagree on the call, dtype, shape, op, root, algorithm or name. No data
        has moved; the communicator remains usable.
    ringcomm.RankLeftError
        In a call: a rank that the call needs has left in an orderly way. It has closed the
        communicator, or its script has ended.
    ringcomm.PeerLostError
        In a call: the process of a rank died without notice, an earlier call of a rank failed or
        was interrupted, or MPI failed. Every later call raises it too.

    Examples
    --------
    The results of these collectives are those of two ranks:

    >>> comm.allreduce(np.arange(4.0), op=ringcomm.Sum).tolist()
    [0.0, 2.0, 4.0, 6.0]
    >>> comm.broadcast(np.full(2, rank), root=1).tolist()
    [1, 1]
    >>> comm.allgather(np.full(rank + 1, rank)).tolist()  # parts may differ in length
    [0, 1, 1]
    >>> comm.reducescatter(np.ones(4)).tolist()
    [2.0, 2.0]
    >>> comm.alltoall(np.full(2, rank)).tolist()
    [0, 1]
    >>> total = comm.reduce(np.ones(2), root=0)  # None on rank 1
    >>> part = comm.scatter(np.arange(4), root=0)  # two elements on each rank

    Non-blocking and persistent calls, and messages:

    >>> handle = comm.iallreduce(np.ones(2))
    >>> handle.wait().tolist()
    [2.0, 2.0]
    >>> x = np.ones(2)
    >>> call = comm.allreduce_init(x)
    >>> call.start().wait().tolist()
    [2.0, 2.0]
    >>> inbox = np.empty(2)
    >>> request = comm.irecv(inbox, source=1 - rank)
    >>> comm.send(x, dest=1 - rank)
    >>> request.wait().count("float64")
    2
    """

    def __init__(self, comm: Any = None, config: configuration.Config | None = None) -> None:
        process.check_process()
        if comm is None:
            comm = initialized().COMM_WORLD
        own_config = configuration.from_environment() if config is None else config
        if own_config.check_launcher and not isinstance(comm, Link):
            check_world()
        binding.shorten_time_slices(own_config.time_slice)
        link = comm if isinstance(comm, Link) else MpiLink(comm, threads=own_config.mpi_threads)
        hellos = link.exchange(
            (__version__, own_config, guardian.hello(), tuning.cached_parameters(link, own_config), binding.allowed())
        )
        versions = [version for version, *_ in hellos]
        if len(set(versions)) > 1:
            raise RingcommError(
                f"ranks run different versions of ringcomm: {', '.join(versions)} (in rank order); install one version"
            )
        self._link = link
        self.rank, self.size = link.rank, link.size
        self.config = tuning.add_network_parameters(
            link, own_config.agreed([options for _, options, *_ in hellos], link.rank), hellos[0][3]
        )
        self._cores = self._bind([hellos[rank][4] for rank in link.topology.host])
        self._own_core = self._cores > 1  # the worker's thread shares no core with callers
        self.custom_algorithms = CustomAlgorithms()
        if self.config.algorithm:
            self.custom_algorithms.agree_on_default(self.config.algorithm, self.rank, self.size, link.exchange)
        self._node, self.shared_memory_reason = self._share_memory()
        self._open_channels()
        exits.watch(self)
        if isinstance(link, MpiLink):
            link.note_many_open()
            configuration.log_unknown(os.environ, self.rank)
        elif self.rank == 0:
            configuration.log_unknown(os.environ)
        neighbours = {rank: hellos[rank][2] for rank in link.topology.host}
        guardian.watch(self.rank, self.size, neighbours, self.config.survive)

    def _bind(self, cores: list[binding.Cores]) -> int:
        """Binds this rank to its share of the host's cores. Returns the number of cores per rank.

        `cores`: the cores on which each rank of this host may run.
        """
        if self._link.is_whole_job and self.config.bind:
            binding.bind(cores, self.local_rank)
        return binding.cores_of_each(cores)

    def _share_memory(self) -> tuple[_core.Node | None, str]:
        if self.size == 1:
            return None, "the communicator has only one rank"
        if self.config.shared_memory == "off":
            return None, "the option shared_memory is off"
        node, why = self._link.share_memory(comparison_slots=(ORDERED_SLOT, QUEUED_SLOT))
        if node is None and self.config.shared_memory == "on":
            raise RingcommError(f"shared memory is required (shared_memory=on) but is not available: {why}")
        return node, why

    def _open_channels(self) -> None:
        link, peers = self._link, range(self.size)
        self._ledger = accounts.Ledger(3, self.config.stats)
        if self.config.stats and isinstance(link, MpiLink):
            accounts.report_at_end()
        ordered, queued, messages = self._ledger.accounts
        config = self.config.channel(link.topology.host_of, self.custom_algorithms.table, ordered)
        if self._cores > 0:
            config = config._replace(spin_ns=SPIN_NS)
        self._channel = _core.Channel(
            link.ordered, peers, self.rank, 0, link.tags, self._node, ORDERED_SLOT, config, link.worker
        )
        config = config._replace(account=queued)
        self._queued = _core.Channel(link.queued, peers, self.rank, 0, link.tags, self._node, QUEUED_SLOT, config)
        self._queue = _core.Queue(link.worker, self._queued)
        self._messages = open_messages(link, self._node, config.spin_ns, self._own_core, self.config, messages)
        for channel in (self._channel, self._queued, self._messages):
            channel.watch(processes, link.rank_of)
        self._last_submitted: _core.Operation | None = None
        self._call_cache = self._channel
        self._unusable: Exception | None = None
        self._agreed: set[tuple[str, str]] = set()  # (collective, algorithm) that ranks agreed on

    # ---- ranks and hosts ---------------------------------------------------------------------------------------------
    @property
    def local_rank(self) -> int:
        """This rank's index among the communicator's ranks on its host."""
        return self._link.topology.local_rank

    @property
    def local_size(self) -> int:
        """Number of the communicator's ranks on this host."""
        return self._link.topology.local_size

    @property
    def cross_rank(self) -> int:
        """This host's index among the hosts that have a rank of this local_rank."""
        return self._link.topology.cross_rank

    @property
    def cross_size(self) -> int:
        """Number of hosts that have a rank of this local_rank."""
        return self._link.topology.cross_size

    @property
    def is_homogeneous(self) -> bool:
        """True if every host has the same number of ranks."""
        return self._link.topology.is_homogeneous

    @property
    def shared_memory(self) -> bool:
        """True if ranks of a host use shared memory; else see ``shared_memory_reason``."""
        return self._node is not None

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32", device: str | int | None = None) -> Any:
        """Returns an uninitialised array in memory that this host's ranks share, or on a GPU.

        An in-place all-reduce of arrays in shared memory copies nothing. Not collective. Without
        shared memory (``shared_memory_reason``), the array is in ordinary memory. A forked child
        has a private copy of it.

        Parameters
        ----------
        shape : int | tuple[int, ...]
            Shape of the array, as for ``numpy.empty``.
        dtype
            Anything that ``numpy.dtype`` accepts, without Python objects.
        device : str | int | None
            None or "cpu": shared memory; "cuda": the GPU of this rank's local rank; "cuda:1" or
            1: GPU 1.

        Returns
        -------
        numpy.ndarray, cupy.ndarray or DeviceArray
            On a GPU, a CuPy array if CuPy is installed, else a :class:`ringcomm.DeviceArray`.

        Raises
        ------
        ringcomm.UnsupportedError
            A GPU is requested, and there is no driver.
        ValueError
            The device does not exist.

        Examples
        --------
        >>> x = comm.empty(1000)
        >>> x.fill(1)
        >>> float(comm.allreduce(x, out=x)[0])
        2.0
        """
        if device is None or device == "cpu":
            return shared.empty(self._node, shape, dtype)
        from ringcomm._src.arrays.device import array, devices

        return array.empty(shape, dtype, devices.of_name(device, self.local_rank))

    def shared_arrays(self) -> AbstractContextManager[None]:
        """Returns a context in which NumPy allocates arrays of 64 KB or more in shared memory.

        This includes arrays that libraries allocate through NumPy. As with arrays of ``empty``, an
        in-place reduction of them copies nothing.

        The setting applies to this thread, or asyncio task, as NumPy's memory handlers do (NEP 49).
        The arrays remain valid after the block. Without shared memory (``shared_memory_reason``),
        or when it is exhausted, arrays are in ordinary memory. A forked child has a private copy of
        them.

        Examples
        --------
        >>> with comm.shared_arrays():
        ...     x = np.ones(100_000)
        >>> float(comm.allreduce(x, out=x)[0])
        2.0
        """
        return numpy_memory.shared_arrays(self._node)

    def stats(self, reset: bool = False) -> accounts.Stats:
        """Returns this rank's statistics of calls and messages.

        Not collective. It may be called after ``close()``. Statistics of named operations are in
        :func:`ringcomm.stats`.

        Parameters
        ----------
        reset : bool
            Reset the counters to zero; default False.

        Examples
        --------
        >>> result = comm.allreduce(np.ones(2))
        >>> comm.stats().of("allreduce").calls > 0
        True
        """
        return self._ledger.stats(reset)

    def neighbours(self, graph: Graph) -> Neighbours:
        """Returns an object with collectives between the neighbours in a graph.

        Not collective.

        Parameters
        ----------
        graph : Graph
            "ring" (the ranks before and after), "exponential" (rank + 1, 2, 4, ... modulo the
            size), "hypercube" (ranks that differ in one bit); or for each rank, a list of the ranks
            that it sends to. It is identical on all ranks.

        Raises
        ------
        ValueError
            The graph does not exist for this number of ranks.

        Examples
        --------
        >>> ring = comm.neighbours("ring")
        >>> ring.receives_from == (1 - rank,)
        True
        >>> x = ring.allgather(np.ones(2))  # the array of the other rank
        """
        return Neighbours(self, graph)

    # ---- lifetime ----------------------------------------------------------------------------------------------------
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Creates a communicator of the ranks with the same ``color``. Collective.

        Parameters
        ----------
        color : int | None
            0 or more. None: this rank joins no new communicator, as with ``MPI.UNDEFINED``.
        key : int
            Ranks of a new communicator are ordered by ``key``, then by their rank here.

        Returns
        -------
        Communicator | None
            The new communicator, which the caller closes; None if ``color`` is None.

        Raises
        ------
        TypeError, ValueError
            ``color`` or ``key`` has another type or value.

        Examples
        --------
        >>> alone = comm.split(color=rank)
        >>> alone.size
        1
        >>> alone.close()
        """
        self._require_usable()
        if color is not None and (color := arguments.integer("split: color", color)) < 0:
            raise ValueError(f"split: color must be 0 or more, not {color}; None: to join no communicator")
        link = self._link.split(color, arguments.integer("split: key", key))
        return None if link is None else Communicator(link, self.config)

    def close(self) -> None:
        """Closes the communicator. Collective: every rank calls it, with no call in progress.

        Further calls of ``close`` have no effect. A rank that is still waiting in a non-blocking
        call gets :exc:`ringcomm.RankLeftError`.

        Raises
        ------
        ringcomm.MismatchError
            Another rank makes a different call instead, or messages were not received. The
            communicator is closed on this rank.
        """
        if self._unusable is not None:
            return
        if self._last_submitted is not None:
            self._last_submitted.wait()  # returns also if a peer is in close() already
        self._queue.close()
        self._queued.leave()  # ends non-blocking calls in which peers are still waiting
        try:
            self.barrier(name="close()")
        except HorovodInternalError:
            self._leave("this communicator is closed")
            raise
        leftovers = self._messages.close(self._messages_to_this_rank())
        self._disable(ShutDownError("this communicator is closed"))
        self._ledger.end()
        del self._channel, self._queued, self._queue, self._messages
        self._link.free()
        exits.unwatch(self)
        require_no_leftovers(leftovers, self.rank)

    def _messages_to_this_rank(self) -> list[int]:
        """Returns the number of messages from each rank to this rank over the message transport.

        Collective if that transport exists.
        """
        sent = self._messages.sent()
        return list(self.alltoall(np.array(sent, np.int64), name="close()")) if sent else []

    def _leave(self, why: str) -> None:
        """Notifies the peers that this rank makes no more calls.

        Not collective; MPI's resources are kept until MPI is finalised.
        """
        if self._unusable is None:
            self._disable(ShutDownError(why))
            self._queue.close()
            self._channel.leave()
            self._queued.leave()
            print_leftovers(self._messages.leave(), self.rank)
            self._ledger.end()

    def _abandon(self, why: str) -> None:
        """Releases, after a failure of this rank, the resources whose release needs no peer."""
        self._leave(why)
        exits.unwatch(self)

    def _disable(self, error: Exception) -> None:
        self._unusable = error
        self._call_cache = None

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()  # after an error, peers may be in other calls: a collective call could block for ever

    def __repr__(self) -> str:
        return f"<ringcomm.Communicator: rank {self.rank} of {self.size}>"

    # ---- running calls -----------------------------------------------------------------------------------------------
    def _require_usable(self) -> None:
        if self._unusable is not None:
            raise self._unusable

    def _run(self, request: Request) -> None:
        self._prepare(request)
        self._channel.run(request)

    def _submit(self, request: Request) -> Handle[Any]:
        self._prepare(request)
        self._last_submitted = self._queue.submit(request)
        return Handle([self._last_submitted], request.finish, request.name or _core.COLLECTIVES[request.collective])

    def _prepare(self, request: Request) -> None:
        """Raises if the communicator is unusable. Ranks agree on a new custom algorithm."""
        if self._unusable is not None:
            raise self._unusable
        if name := request.algorithm:
            collective = _core.COLLECTIVES[request.collective]
            if (collective, name) in self._agreed:
                return
            if not algorithms.is_builtin(collective, name):
                self.custom_algorithms.agree(collective, name, self.rank, self.size, self._exchange_digests)
            self._agreed.add((collective, name))

    def _exchange_digests(self, digest: bytes) -> list[bytes]:
        rows = self.allgather(np.frombuffer(digest, np.int64)[None, :], [1] * self.size, name="algorithm")
        return [row.tobytes() for row in rows]
