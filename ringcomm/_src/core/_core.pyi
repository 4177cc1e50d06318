"""The interface of the native core. It has no policy. Blocking calls release the GIL.

dtype, op and collective are indices into DTYPES, OPS and COLLECTIVES. Memory is passed as
addresses: the caller keeps it alive. Errors are the exceptions of ringcomm.errors.
docs/write_stub.py writes this file.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.config.config import Config
from ringcomm._src.training.plans import BucketShape

def set_error_types(types: Sequence[type[BaseException]]) -> None:
    """Sets the exception classes in the order of ErrorKind (csrc/base/error.hpp)."""

def watch_exit(main_thread: int) -> None:
    """Enables exit_status(). `main_thread`: the main thread's identifier, from threading."""

def exit_status() -> int:
    """Returns the status of the SystemExit that ends the interpreter, else 0; for atexit."""

def end_without_mpi(status: int) -> None:
    """Makes the process end with this status after Python, but before MPI's exit functions."""

def enter_child(make_error: Callable[[], Exception]) -> None:
    """Marks this process as a forked child: handles raise the error that `make_error` returns."""

DTYPES: tuple[str, ...]
ITEM_SIZES: tuple[int, ...]
OPS: tuple[str, ...]
COLLECTIVES: tuple[str, ...]

class Step(NamedTuple):
    kind: str  # "send", "receive", "reduce", "combine", "copy"
    peer: int  # -1 for local steps
    block: int
    source: int  # combine, copy; else -1
    incoming_first: bool | None  # reduce, combine: operand order; None: prove() decides

class Price(NamedTuple):
    seconds: float
    messages: int
    bytes: float
    reduced: float
    rounds: int  # rounds of one instance
    kind: int  # links that take most of the time, as an index of Topology.kinds; -1: none do

class AlgorithmInfo(NamedTuple):
    collective: str
    name: str
    equal_blocks: bool
    summary: str
    automatic: bool
    alias: str  # "": none

class Network(NamedTuple):
    """The cost model: seconds per message, and per byte sent, reduced, copied (network.hpp)."""

    alpha: float
    beta: float
    gap: float
    hidden: float
    host_alpha: float
    host_beta: float
    gamma: float
    copy: float

class Option(NamedTuple):
    name: str  # an algorithm; "shared"; or "two_level:" and the algorithm between hosts
    segment: int
    window: int
    price: Price
    chosen: bool  # the core would choose it among the listed options

class Schedule:
    """The schedule of one rank (csrc/schedule/schedule.hpp)."""
    def __init__(
        self,
        collective: str,
        algorithm: str,
        rank: int,
        size: int,
        root: int,
        blocks: int,
        temps: Sequence[int],
        rounds: Sequence[Sequence[Step]],
        symmetry: str = "none",
    ) -> None: ...
    collective: str
    algorithm: str
    rank: int
    size: int
    root: int
    blocks: int
    temps: list[int]
    symmetry: str  # one of SYMMETRIES
    rounds: list[list[Step]]

def algorithms() -> list[AlgorithmInfo]: ...
def check_algorithm(collective: str, name: str, size: int = 0) -> None:
    """Raises ValueError unless `name` is "shared" or built in, for `size` ranks (0: any)."""

def schedule(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule: ...
def prove(schedules: Sequence[Schedule]) -> str | None:
    """Returns None if the schedules are proved, else the reason why not.

    Sets the operand orders that are None: the operand with the lowest rank's data is the first.
    """

def follow(schedules: Sequence[Schedule]) -> list[list[list[float]]]:
    """Returns at [r][i][b] how complete (0 to 1) block b of rank r is when round i begins.

    The last entry of each rank is for the end. Raises ValueError if ranks deadlock.
    """

def digest(schedules: Sequence[Schedule]) -> bytes:
    """Returns a hash of 16 bytes, equal only for equal schedules of all ranks."""

def price(
    schedules: Sequence[Schedule],
    nbytes: int,
    network: Network,
    segment: int = 0,
    window: int = 1,
    topology: Topology | None = None,
) -> Price:
    """Prices the schedules of ranks on separate hosts. segment: bytes; 0: all data in one."""

class Topology:
    """The links between hosts, for prices with contention (csrc/schedule/topology.hpp)."""
    @staticmethod
    def fat_tree(hosts: int, rack: int, oversubscription: float, hop: float = 0) -> Topology: ...
    @staticmethod
    def torus(shape: Sequence[int], hop: float = 0) -> Topology: ...
    @staticmethod
    def rails(hosts: int, rails: int, spine: float = 0, hop: float = 0) -> Topology: ...
    @staticmethod
    def graph(
        hosts: int, nodes: int, links: Sequence[tuple[int, int, float, int]], kinds: Sequence[str], hop: float = 0
    ) -> Topology:
        """links: source, target, cost and kind of each."""
    hosts: int
    kinds: list[str]

class Menu:
    """The priced algorithms and routes of a collective (csrc/collectives/choose.hpp)."""
    def __init__(
        self,
        collective: str,
        size: int,
        hosts: Sequence[int] | None,
        network: Network,
        topology: Topology | None = None,
    ) -> None:
        """hosts: the host of each rank; None: each rank has its own."""
    def options(
        self,
        name: str,
        nbytes: int,
        equal_blocks: bool = True,
        memory: bool = False,
        segment: int = 0,
        window: int = 0,
        wire: int = 0,
    ) -> list[Option]:
        """Returns the options for `name` ("": all), each with its cheapest segment and window.

        segment, window: fixed values; 0: cheapest. memory: include routes through shared memory.
        wire: wire format of float32 (wire_code).
        """

def reduces(dtype: int, op: int) -> bool: ...  # True if the dtype supports the elementwise op
def kernel_reduce(dtype: int, op: int, target: int, first: int, second: int, count: int) -> None: ...
def kernel_scale(dtype: int, target: int, source: int, count: int, factor: float, divisor: int) -> None: ...
def kernel_reduce_many(
    dtype: int,
    op: int,
    targets: Sequence[int],
    sources: Sequence[int],
    count: int,
    pre: float,
    post: float,
    divisor: int,
    stream: bool = False,
) -> None: ...
def kernel_cast(to: int, target: int, source_dtype: int, source: int, count: int) -> None: ...
def kernel_copy(target: int, source: int, nbytes: int, stream: bool = False) -> None: ...
def digests(addresses: Sequence[int], nbytes: Sequence[int]) -> bytes: ...  # a uint64 per array (kernels/digest.hpp)
def instruction_set() -> str: ...

class TraceEvent(NamedTuple):
    begin_ns: int
    end_ns: int
    bytes: int
    rank: int
    thread: int  # 0: caller, 1: worker
    lane: int  # row of the timeline, for phases that overlap in time; -1: none
    category: str  # see the list in csrc/base/trace.hpp
    name: str
    detail: str  # for "run": the algorithm or route that ran: "ring", "shared", "local" ...

def trace_enable(on: bool) -> None: ...

class TraceEvents:
    """A list of events in the core's representation."""
    def __len__(self) -> int: ...
    def as_list(self) -> list[TraceEvent]: ...

def trace_drain() -> TraceEvents: ...

class TraceText:
    """A formatter of events as Chrome trace JSON (csrc/base/trace_text.hpp). Not thread-safe."""
    def __init__(self, rank: int, mark_cycles: bool) -> None: ...
    def row(self, name: str) -> int:
        """Returns the number of a tensor's row. The next text() describes new rows."""
    def text(self, events: TraceEvents | None = None) -> bytes:
        """Returns descriptions of new rows and the events, separated by commas; may be empty."""

def trace_dropped() -> int: ...
def wire_formats() -> tuple[str, ...]: ...
def wire_code(name: str, mode: int = -1, group: int = -1, amount: float = -1) -> int:
    """Returns a wire format's code. Negative values: its defaults. ValueError: unknown format."""

def wire_ratio(code: int, dtype: int) -> float:
    """Returns the bytes sent for each byte of this dtype; 1: elements are not encoded."""

def wire_rounds(code: int) -> bool:
    """Returns True if the format only rounds, and so has no residuals."""

def wire_text(code: int) -> str: ...  # includes its parameters

class Feedback:
    """The residuals of error feedback (csrc/codecs/feedback.hpp)."""
    def __init__(self, counts: Sequence[int]) -> None: ...
    def undo(self, tensor: int, first: int = 0, count: int | None = None) -> None: ...
    def undo_all(self) -> None: ...
    def scale(self, by: float) -> None: ...
    def residual(self, tensor: int = 0) -> tuple[int, int]: ...  # address, elements
    def count(self, tensor: int = 0) -> int: ...
    def begin(self, tensor: int = 0) -> None: ...

class Codec:
    """The encoder and decoder of a wire format, on arrays at addresses; benchmarks use it."""
    def __init__(self, code: int, dtype: int, feedback: Feedback | None = None) -> None: ...
    def capacity(self, count: int) -> int: ...
    def encode(self, block: int, count: int, wire: int) -> int:
        """Encodes a block; writes the decoded values to the block. Returns the encoded bytes."""
    def decode(self, wire: int, nbytes: int, block: int, count: int, add: bool) -> None: ...

class SparseTables:
    """The sum of sparse tables: (dtype, elements of a row, rows) each. Addresses must stay valid."""
    def __init__(self, tables: Sequence[tuple[int, int, int]]) -> None: ...
    def add(self, table: int, indices: int, values: int, count: int) -> None: ...
    def add_packed(self, operation: str, blocks: int, nbytes: int) -> None: ...
    def added(self) -> list[int]:
        """Returns the number of entries added to each table, with duplicates."""
    def counts(self) -> list[int]:
        """Returns the number of distinct rows of each table."""
    def write(self, table: int, indices: int, values: int, factor: float, divisor: int, next_used: int = 0) -> None: ...
    def packed_bytes(self, owners: int) -> list[int]:
        """Returns the bytes of each owner's block."""
    def pack(self, owners: int, rank: int, out: int) -> None: ...

def open_devices(library: str, nccl: str) -> int:
    """Loads CUDA's driver once; returns the number of GPUs. ValueError: there is no driver."""

def give_kernels(module: str, image: bytes) -> None:
    """Sets the PTX of a module; must be called before any array of a GPU is used."""

def device_copy(device: int, to: int, source: int, nbytes: int, stream: int, wait: bool) -> None:
    """Copies between any two addresses, in stream order. `wait`: blocks until the copy is done."""

def device_arrange(
    device: int,
    to: int,
    to_strides: Sequence[int],
    source: int,
    strides: Sequence[int],
    shape: Sequence[int],
    size: int,
    stream: int,
) -> None:
    """Copies elements of `size` bytes between arrays with strides in bytes, in stream order."""

def device_pack(
    device: int, sources: Sequence[int], destinations: Sequence[int], counts: Sequence[int], dtype: int, stream: int
) -> None:
    """Copies arrays of a dtype (index in DTYPES) in stream order, up to 128 in one kernel."""

def device_of(address: int) -> int: ...  # the GPU that has this memory; -1: none
def device_capturing(device: int, stream: int) -> bool:
    """Returns True if the stream is being captured into a CUDA graph."""

class DeviceOrder:
    """The order of a call and CUDA streams.

    The call's buffers are ready after the work that the streams contain when this object is made.
    """
    def __init__(self, device: int, streams: Sequence[int], host_output: bool = False) -> None: ...
    def join(self, stream: int) -> None:
        """Makes later work on the stream wait for the result of the ended call; does not block."""
    def hold(self, stream: int) -> None:
        """Makes later work on the stream wait until the buffers are ready; does not block."""
    def wait(self) -> None: ...  # after the call has ended: blocks until its result is ready
    def over(self) -> bool:
        """Returns True if the result of the ended call is ready, and buffers may be freed."""

class DeviceMemory:
    """GPU memory, which is freed with this object."""

    address: int
    nbytes: int
    device: int
    def __init__(self, device: int, nbytes: int) -> None: ...

class Request:
    """One call with its arguments, for a channel, a queue, or the engine.

    finish(operation) makes the result and keeps the buffers alive (operation: None for an ordered
    call).
    """

    finish: Any
    nameless: bool
    def __init__(
        self,
        collective: int,
        dtype: int,
        finish: Callable[..., Any] | None = None,
        *,
        op: int = 1,
        root: int = 0,
        algorithm: str = "",
        input: int = 0,
        output: int = 0,
        count: int = 0,
        counts: Sequence[int] | None = None,
        receive_counts: Sequence[int] | None = None,
        row: int = 1,
        rows: int = 0,
        splits: Sequence[int] | None = None,
        pre: float = 1,
        post: float = 1,
        wire: int = 0,
        name: str = "",
        shape: Any = None,
        order: DeviceOrder | None = None,
        even: bool = False,
        feedback: Feedback | None = None,
        output_per_rank: Sequence[int] = (),
        span: Sequence[int] | None = None,
    ) -> None: ...
    host_output: bool  # the core allocates the result
    written: tuple[int, int]
    def set_location(self, order: DeviceOrder | None) -> None:
        """Sets the stream order, for another call on the same arrays of a GPU."""
    collective: int
    name: str
    algorithm: str  # "": the core chooses
    priority: int

def array_memory(array: object) -> int:
    """Returns the address of a NumPy array, several times faster than `array.ctypes.data`."""

class ThreadsHub:
    ...
    def __init__(self, size: int) -> None: ...
    def kill(self, rank: int) -> None: ...

class Transport:
    ...
    @staticmethod
    def mpi(
        extension_path: str,
        comm: int,
        rank: int,
        size: int,
        tag_limit: int,
        *,
        handle_size: int,
        status_size: int,
        byte_type: int,
        null_request: int,
        status_source_offset: int,
        status_error_offset: int,
        any_source: int,
        undefined: int,
    ) -> Transport:
        """Makes a transport through MPI; platform.mpi_library.describe returns the keywords."""
    @staticmethod
    def threads(hub: ThreadsHub, rank: int) -> Transport: ...
    rank: int
    size: int
    tag_limit: int
    def counts(self) -> tuple[list[int], list[int]]:
        """Returns the numbers of messages sent to and received from each rank since creation."""

class Processes:
    """A set of this host's processes, by id, that detects which of them ended."""
    def __init__(self) -> None: ...
    def watch(self, pid: int) -> None: ...
    def dead(self) -> set[int]: ...

class Node:
    """The mapped arenas of this host's ranks."""
    def __init__(self, rank: int, fds: Sequence[int]) -> None: ...
    @staticmethod
    def make_arena() -> int: ...  # a file descriptor, which the caller closes
    @staticmethod
    def for_threads(size: int) -> list[Node]: ...
    rank: int
    size: int
    def reserve_leader_scratch(self, slot: int) -> None: ...  # for consistency checks between hosts
    def kill(self, rank: int) -> None:
        """Simulates the death of a rank, if ranks are threads: the rank no longer communicates."""
    def watch(self, pidfds: Sequence[int]) -> None: ...
    def dead(self) -> list[int]: ...
    def allocate(self, nbytes: int) -> tuple[int, int]: ...  # (offset, address)
    def free(self, offset: int) -> None: ...
    def address(self, rank: int, offset: int) -> int: ...
    def offset_of(self, address: int, nbytes: int) -> int | None: ...

class SharedMemory:
    """Memory in this rank's arena, which is freed with this object."""

    address: int
    nbytes: int
    def __init__(self, node: Node, nbytes: int) -> None: ...

def start_guardian(
    guarded: Sequence[tuple[int, int, str]], to: int, after: int, grace: int, command: Sequence[str]
) -> int:
    """Forks the guardian, which reports the first rank of this host that ends, and ends the job.

    `guarded`: (pidfd, connection, line) of each rank. The other arguments are those of DeathAction
    (csrc/shm/guardian.hpp). Returns the guardian's process id.
    """

def set_time_slice(ns: int) -> bool:
    """Sets the time slice of this thread and of threads that it starts (base/time_slice.hpp)."""

class Worker:
    ...
    def __init__(self, threaded: bool) -> None: ...
    threaded: bool
    def help(self) -> None: ...
    def stop(self) -> None: ...

class Account:
    """Counts of messages, bytes and time, by operation and algorithm (csrc/base/account.hpp)."""
    def __init__(self, timed: bool) -> None: ...
    def entries(self) -> list[tuple[str, str, list[int]]]:
        """Returns (operation, algorithm, numbers) of each entry.

        The numbers are calls; messages and bytes sent; messages and bytes received; bytes of shared
        memory; bytes saved by encoding; and in ns: encoding, waiting, submission to completion.
        """

class ChannelConfig(NamedTuple):
    """The configuration of a channel, or of an engine and its channels."""

    options: Config
    network: Network
    hosts: Sequence[int]  # host of each rank of the transport; empty: each rank has its own
    rules: Sequence[Rule]
    topology: Topology | None = None  # links between hosts, for prices with contention
    custom_algorithms: CustomAlgorithms | None = None
    account: Account | None = None  # counts the calls, of one thread at a time; None: a new one
    spin_ns: int = 0  # time that a waiting caller spins before it yields its core, in ns

class Rule(NamedTuple):
    """The algorithm ("": any) and segment (0: any) of calls within these inclusive bounds."""

    collective: str
    from_bytes: int
    to_bytes: int
    from_ranks: int
    to_ranks: int
    algorithm: str
    segment: int

class CustomAlgorithms:
    """The schedules of custom algorithms (csrc/collectives/custom_algorithms.hpp)."""
    def __init__(self) -> None: ...
    def add(self, name: str, schedule: Schedule) -> None: ...

SLOTS: int

class Channel:
    """One ordered stream of collective calls (csrc/collectives/channel.hpp)."""
    def __init__(
        self,
        transport: Transport,
        peers: Sequence[int],
        rank: int,
        first_tag: int,
        tag_count: int,
        node: Node | None,
        slot: int,
        config: ChannelConfig,
        worker: Worker | None = None,
    ) -> None:
        """`worker`: if it has no thread, calls run its pending work while they wait."""
    def choose(self, request: Request) -> str: ...  # algorithm for the request's collective, dtype, op, count
    def run(self, request: Request) -> None:
        """Runs a call. Ctrl-C raises KeyboardInterrupt and breaks the channel."""
    def run_messages(self, schedule: Schedule, data: int, nbytes: int, segment: int, window: int) -> None:
        """Runs the sends and receives of a schedule, in segments, for benchmarks; not a call."""
    def remember(
        self,
        array: Any,
        shape: tuple[int, ...] | None,
        has_result: bool,
        request: Request,
        exchange: tuple[Request, Sequence[int], Sequence[int]] | None = None,
        cache_key: Sequence[int] | None = None,
    ) -> None:
        """Adds a call to the cache of CachedMethods.

        `shape`: shape of the output. `has_result`: this rank returns it. `exchange`: (request,
        numbers sent, numbers received) of the exchange before the call. `cache_key`: numbers of the
        caller on which the call depends.
        """
    def device_route_statuses(self) -> dict[str, str]:
        """Returns, for each GPU route but staging, best first, why it is unusable ("": usable)."""
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # rank_of: process id -> rank
    broken: str | None
    def leave(self) -> None: ...

INTO_OUT: int  # last number of the cache key of a call that has `out` but no `x` (a scatter)

class CachedCalls:
    """Base class of communicators: what their cached methods use."""

    _call_cache: Channel | None  # channel that runs the calls; None: no call is cached
    _exchanged: list[Any] | None  # received numbers, if a cached call has exchanged others than before

class CachedMethod:
    """A method of a class derived from CachedCalls that first looks its call up in the cache.

    Parameters of `general` that are named x, out, root, op, prescale_factor, postscale_factor, wire
    or rows mean what they mean in ringcomm.Communicator. A call is not cached if any other
    parameter differs from its default. `key`: first number of the cache key; the root follows. If
    the cached call's exchange gives other numbers, `general` finds them in `_exchanged`.
    """
    def __init__(self, general: Callable[..., Any], collective: int, key: int | None = None) -> None: ...
    def __reduce__(self) -> str: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None) -> Any: ...

class BlockPool:
    """A pool of reusable blocks of a few sizes in this rank's arena (csrc/shm/block_pool.hpp)."""
    def __init__(self, node: Node) -> None: ...
    def serve(self, nbytes: int, more: int) -> None: ...
    in_use: int

def serve_library(library: str) -> bool:
    """Makes a loaded library allocate large blocks from pools, until the process ends.

    serve_from() adds a pool. Returns False if the library cannot be redirected
    (csrc/shm/served_memory.hpp).
    """

def serve_from(pool: BlockPool) -> None: ...
def serve_no_more_from(pool: BlockPool) -> None: ...
def numpy_memory(node: Node) -> Any: ...  # a handler, in a capsule, that allocates in this rank's arena
def set_numpy_memory(handler: Any) -> Any: ...  # returns the previous handler

class Operation:
    ...
    name: str
    def done(self) -> bool: ...
    def over(self) -> bool:
        """Returns True if neither the core nor a copy to a GPU uses the buffers any more."""
    def wait(self, seconds: float = -1) -> bool: ...  # negative: no limit; Ctrl-C raises
    def check(self) -> None: ...  # raises the operation's error
    counts: list[int]
    last_joined: int  # for a join: the global rank that was last
    def output(self) -> tuple[int, int] | None: ...  # (address, bytes), valid as long as this object

class Plan:
    """The buckets of a training step, in a fixed order (csrc/engine/engine.hpp)."""
    def begin(self) -> None: ...
    def takes_stretches(self, bucket: int) -> bool: ...
    def place(self, bucket: int, stretch: int, address: int) -> None: ...
    def ready(self, bucket: int) -> None: ...
    def ready_at(self, bucket: int, order: DeviceOrder) -> None: ...  # for a bucket on a GPU
    def finish(self, present: bytes) -> Operation: ...  # `counts` of the result: number of ranks that had each item
    def part(self, part: int) -> Operation: ...  # finishes with a bucket of the step begun last, or the counts
    def feedback(self) -> Feedback | None: ...  # residuals of the plan's buckets; ValueError during a step
    def close(self) -> None: ...

class Queue:
    """The non-blocking calls of a channel, which the worker runs in the order of submission."""
    def __init__(self, worker: Worker, channel: Channel) -> None: ...
    def submit(self, request: Request, name: str | None = None, address: int = 0) -> Operation:
        """Submits a call. `name`: repeats an in-place request, with this name, on other memory.

        The memory is at `address`.
        """
    def close(self) -> None: ...

class Engine:
    ...
    def __init__(self, worker: Worker, transport: Transport, config: ChannelConfig) -> None: ...
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # rank_of: process id -> rank
    def lost(self) -> list[int]: ...  # ranks that a fatal error named
    def add_set(self, ranks: Sequence[int], node: Node | None, slot: int) -> int: ...
    def remove_set(self, set_id: int) -> None: ...
    def submit(self, set_id: int, request: Request) -> Operation: ...
    def submit_group(self, set_id: int, requests: Sequence[Request]) -> list[Operation]: ...
    def join(self, set_ids: Sequence[int]) -> list[Operation]: ...  # each is done when all ranks of its set joined
    def make_plan(
        self,
        set_id: int,
        name: str,
        buckets: Sequence[BucketShape],
        op: int,
        pre: float,
        post: float,
        items: int,
        node: Node | None,
        slot: int,
        algorithm: str = "",
        by_priority: bool = False,
        overlaps: bool = True,
    ) -> Plan: ...
    def has_room_for_plan(self, set_id: int) -> bool: ...
    def leave(self) -> None: ...
    def pending(self) -> list[str]: ...

class ArrayKey:
    """The conditions under which an in-place request for one array also fits another array.

    The class is `cls`. Each attribute in `identical` is the identical object, and each in `equal`
    is equal. Each method in `true_methods` returns true, and each in `false_methods` returns false.
    The method `address` returns the array's address.
    """
    def __init__(
        self,
        cls: type,
        identical: dict[Any, Any],
        equal: dict[Any, Any],
        true_methods: tuple[Any, ...],
        false_methods: tuple[Any, ...],
        address: str,
    ) -> None: ...
    def address_if_match(self, array: Any) -> int:
        """Returns the address of `array`; -1 if `array` does not match."""

class DlpackKey(ArrayKey):
    """A key for C-contiguous host arrays whose class has DLPack's table of functions."""
    def __init__(self, array: Any, false_methods: tuple[Any, ...]) -> None: ...
    def address_if_match(self, array: Any) -> int: ...

class NdarrayKey(ArrayKey):
    """A key for plain NumPy arrays, compared by the fields of the array's struct."""
    def __init__(self, array: Any) -> None: ...
    def address_if_match(self, array: Any) -> int: ...

def ndarray_key(array: Any) -> ArrayKey | None:
    """Returns a key for a NumPy array; None if `array` is not a NumPy array or not contiguous."""

def keep_until_done(operations: list[Any], buffers: object) -> None:
    """Keeps buffers alive until the operations are done.

    Without operations, these are buffers of a failed call. They are kept until MPI no longer
    transfers messages of failed calls.
    """

def reap_finished() -> None:
    """Releases buffers of operations that are done."""

class InPlaceHandle(Handle[Any]):
    """A handle of one in-place operation. Its result is the caller's array."""

    name: str
    def test(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    result: Any

class _CachedRequest:
    """A cached in-place request, with the key of the arrays that it fits."""

class NamedCalls:
    """A cache of in-place requests of a process set, by name: repeated operations reuse them."""
    def __init__(self, engine: Engine | None, set_id: int) -> None: ...  # engine None: caches nothing
    def try_cached(
        self, name: object, array: Any, op: object, average: object, pre: float, post: float
    ) -> InPlaceHandle | None:
        """Submits a cached operation. If no cached request fits, only returns None."""
    def remember(
        self, name: object, op: object, pre: float, post: float, request: Request, key: ArrayKey
    ) -> None: ...  # op: compared by identity

class SetLink:
    """The link of graphs, which outlive ``shutdown``, to a process set (graph_ops/set_link.hpp)."""
    def __init__(self) -> None: ...
    def connect(self, engine: Engine, set_id: int, rank: int, size: int) -> None: ...
    def disconnect(self) -> None: ...
    def due(self, name: str, every: int) -> int:
        """Counts a run. Returns the run's number if it compares replicas, else 0."""
    def restart(self) -> None: ...  # resets the counts of runs

class GraphOpResult:
    """A result in memory of the core, 64-byte aligned, which is freed with this object."""

    address: int
    nbytes: int
    dtype: int
    shape: tuple[int, ...]

class GraphOp:
    """A collective in a graph (csrc/graph_ops/graph_op.hpp); ``make_graph_op`` creates it.

    Its ``id``, for the table of :func:`graph_op_functions`, is valid until ``remove()``.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> ringcomm.init()
    >>> how, world = bindings.Reduce(ringcomm.Sum), ringcomm.global_process_set
    >>> what = bindings.Description(world, bindings.ALLREDUCE, ["GraphOp.x"], ["float32"], how)
    >>> graph_op = bindings.make_graph_op(what)
    >>> bindings.run_graph_op(graph_op, [np.ones(2, np.float32)])[0].tolist()
    [2.0, 2.0]
    >>> graph_op.remove()
    """

    id: int
    def __init__(
        self,
        link: SetLink,
        collective: int,
        names: Sequence[str],
        *,
        op: int = 1,
        root: int = 0,
        pre: float = 1,
        post: float = 1,
        wires: Sequence[int] = (),
        algorithm: str = "",
        splits: bool = False,
        even: bool = False,
        first_wires: Sequence[int] = (),
        first_runs: int = 0,
        keeps: bool = False,
        look: Callable[[int, list[tuple[int, int, tuple[int, ...]]]], None] | None = None,
        every: int = 0,
    ) -> None: ...
    def run(self, inputs: Sequence[tuple[int, int, Sequence[int]]]) -> list[GraphOpResult]:
        """Runs the operation and returns its results. `inputs`: (address, dtype, shape) of each."""
    def residual(self, tensor: int) -> bytes:
        """Returns the residual of a tensor, as float32 elements. Call it between runs."""
    def set_residual(self, tensor: int, values: int, count: int) -> None: ...
    def raise_failure(self) -> None:
        """Raises the error of the last failed run, once."""
    def remove(self) -> None: ...

def graph_op_functions() -> int:
    """Returns the address of the bindings' function table (csrc/graph_ops/graph_op_functions.h).

    Examples
    --------
    >>> from ringcomm import bindings
    >>> bindings.graph_op_functions() > 0
    True
    """

ANY_SOURCE: int
ANY_TAG: int
PROC_NULL: int

class Status:
    """The status of a message: its source rank, its tag, and its size in bytes.

    Attributes
    ----------
    source, tag : int
        Rank of the sender, and tag of the message.
    nbytes : int
        Size of the message in bytes.
    cancelled : bool
        True if the receive was cancelled; the other attributes are then meaningless.

    Examples
    --------
    >>> x, inbox = np.ones(2), np.empty(2)
    >>> status = comm.sendrecv(x, dest=1 - rank, out=inbox)
    >>> status.nbytes, status.count("float64")
    (16, 2)
    """

    source: int
    tag: int
    nbytes: int
    cancelled: bool
    def count(self, dtype: Any = "uint8") -> int:
        """Returns the number of elements of ``dtype``, by default bytes.

        Raises
        ------
        ValueError
            The size of the message is not a multiple of the size of ``dtype``.
        """

class MessageRequest:
    """A non-blocking send or receive. It keeps its array alive until it is done.

    Examples
    --------
    >>> inbox = np.empty(2)
    >>> request = comm.irecv(inbox, source=1 - rank)
    >>> comm.send(np.ones(2), dest=1 - rank)
    >>> request.wait().nbytes
    16
    """
    def test(self) -> bool:
        """Makes progress; returns True if the request is done. Only ``wait()`` raises its error."""
    def wait(self, timeout: float | None = None) -> Status:
        """Blocks until the request is done, and returns the message's status.

        Raises TimeoutError after ``timeout`` seconds (None: no limit); the request continues.
        """
    name: str  # "send(dest=1, tag=0) of 8 bytes"
    def cancel(self) -> bool:
        """Cancels a receive that has matched no message; returns True if it was cancelled.

        The request is then done, with the status ``cancelled``.
        """

class Messages:
    """A communicator's messages.

    `describe(array, written)` returns (address, bytes, owner of the memory, True if the description
    may be cached).
    """
    def __init__(
        self,
        worker: Worker,
        rank: int,
        size: int,
        node: Node | None,
        on_host: Sequence[int],
        transport: Transport | None,
        first_tag: int,
        piece: int,
        spin_ns: int,
        own_core: bool,
        stall_warn_seconds: float,
        account: Account,
        describe: Callable[[Any, bool], tuple[int, int, Any, bool]],
    ) -> None: ...
    def send(self, x: Any, dest: int, tag: int) -> None: ...
    def recv(self, out: Any, source: int, tag: int) -> Status: ...
    def sendrecv(self, x: Any, dest: int, sendtag: int, out: Any, source: int, recvtag: int) -> Status: ...
    def isend(self, x: Any, dest: int, tag: int, group: str = "") -> MessageRequest: ...
    def irecv(self, out: Any, source: int, tag: int, group: str = "") -> MessageRequest: ...
    def probe(self, source: int, tag: int, waits: bool) -> Status | None: ...
    def sent(self) -> list[int]:
        """Returns the numbers of messages sent to each rank; empty if all ranks share memory."""
    def close(self, sent_to_this_rank: Sequence[int]) -> list[str]:
        """Closes the messages. Returns texts of unreceived messages and unfinished requests.

        `sent_to_this_rank`: number of messages from each rank to this rank.
        """
    def leave(self) -> list[str]: ...  # close() that is not collective
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # rank_of: process id -> rank

RULES: tuple[str, ...]
ARRIVALS: tuple[str, ...]

class RuleOptions:
    """An update rule with its options (csrc/kernels/update.hpp)."""

    rule: int
    def __init__(self, rule: str, **options: float) -> None: ...
    def set(self, name: str, value: float) -> None: ...
    states: int

def update(how: RuleOptions, weights: int, gradient: int, result: int, count: int) -> None:
    """Applies a rule without state to float32 arrays at addresses; benchmarks use it."""

class Clocks:
    """The workers' clocks (csrc/param_server/clocks.hpp). A finished worker's clock is None."""
    def __init__(self, memory: int, workers: int, node: Node | None, of_host: Sequence[int] = ()) -> None: ...
    @staticmethod
    def bytes(workers: int) -> int: ...
    def set(self, worker: int, clock: int | None) -> None: ...
    def of(self, worker: int) -> int | None: ...
    def live(self) -> int: ...
    def wait(self, worker: int, clock: int, seconds: float) -> bool: ...  # worker -1: all workers
    def wake(self) -> None: ...
    def ticks(self) -> int: ...
    def sleep(self, seen: int, seconds: float) -> None: ...
    def lost(self) -> list[int]: ...

class Shard:
    """A shard of weights to which any rank of the host applies a rule (param_server/shard.hpp).

    If `many` > 0, gradients are gathered in `sums` sums (one, or one for each worker), and this
    object adds gradients to the sum with index `sum`. Arrays are addresses; 0: none.
    """
    def __init__(
        self,
        memory: int,
        owner: int,
        count: int,
        wide: bool,
        states: int,
        many: int,
        of_step: bool,
        sums: int,
        sum: int,
        node: Node | None,
        rank: int,
    ) -> None: ...
    @staticmethod
    def bytes(count: int, wide: bool, states: int, sums: int) -> int: ...
    def make(self, weights: int) -> None: ...
    def version(self) -> int: ...
    def broken(self) -> int: ...
    def group(self) -> int: ...
    def gathers_now(self) -> bool: ...
    def apply(
        self, how: RuleOptions, first: int, count: int, gradient: int, pulled: int, result: int
    ) -> int: ...  # the previous version
    def apply_ranges(
        self, how: RuleOptions, ranges: int, many: int, gradient: int, pulled: int, result: int
    ) -> int: ...
    def gather(self, how: RuleOptions, clock: int, gradient: int, clocks: Clocks) -> str:
        """Adds a gradient and returns its outcome, one of ARRIVALS."""
    def apply_if_complete(self, how: RuleOptions, clocks: Clocks) -> bool: ...
    def claim(self, clocks: Clocks, sum: int) -> int: ...  # number of gathered gradients; 0: not enough yet
    def release(self) -> None: ...
    def average_with(self, other: Shard) -> tuple[int, int]: ...  # previous versions of both

class PostedRequest(Operation):
    """A request to a server.

    Its fields are valid once it is done: the previous version, the number of gathered updates, and
    the outcome of the gradient.
    """

    version: int
    group: int
    arrival: str

class StoreService:
    """The store's service between ranks that share no memory (csrc/param_server/service.hpp)."""
    def __init__(self, engine: Engine) -> None: ...
    def serve(
        self, number: int, shard: Shard | None, clocks: Clocks, ranks: Sequence[int], how: RuleOptions | None
    ) -> None: ...
    def forget(self, number: int) -> None: ...
    def post(
        self,
        peer: int,
        number: int,
        how: RuleOptions,
        ranges: Sequence[Sequence[int]],
        element: int,
        gradient: Any,
        pulled: Any,
        result: Any,
        step: int | None = None,
        clock: int | None = None,
        due: tuple[int, int] | None = None,
    ) -> PostedRequest: ...

class HostLock:
    """A lock in 64 zero bytes of shared memory, which outlive it (csrc/param_server/lock.hpp)."""
    def __init__(self, memory: int, node: Node | None, rank: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
