"""The native core, as Python sees it: no policy here. Blocking calls release the GIL.

dtype, op and collective are indices into DTYPES, OPS and COLLECTIVES. Memory is passed as addresses: the caller keeps
it alive. Errors are ringcomm.errors' exceptions. This file is written by docs/write_stub.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.config.config import Config
from ringcomm._src.training.plans import BucketShape

def set_error_types(types: Sequence[type[BaseException]]) -> None:
    """Exception classes in the order of ErrorKind (csrc/base/error.hpp); called once by ringcomm.errors."""

def watch_exit(main_thread: int) -> None:
    """From now on exit_status() tells. `main_thread`: its identifier, as threading gives it."""

def exit_status() -> int:
    """In atexit's functions: the status of the SystemExit that ends the interpreter, 0 if there is none."""

def end_without_mpi(status: int) -> None:
    """The process ends with this status as soon as Python has: before what was registered earlier, as MPI's end is."""

def enter_child(make_error: Callable[[], Exception]) -> None:
    """This process is a forked child: a handle raises what `make_error` makes."""

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
    rounds: int  # of one instance

class AlgorithmInfo(NamedTuple):
    collective: str
    name: str
    equal_blocks: bool
    summary: str

class Network(NamedTuple):
    """What prices schedules (csrc/schedule/network.hpp): seconds, per message, byte sent, byte reduced, byte copied."""

    alpha: float
    beta: float
    gap: float
    hidden: float
    host_alpha: float
    host_beta: float
    gamma: float
    copy: float

class Option(NamedTuple):
    name: str  # an algorithm's; "shared"; "two_level:" and the name of the one between hosts
    segment: int
    window: int
    price: Price
    chosen: bool  # of those it is listed with

class Schedule:
    """One rank's schedule. See csrc/schedule/schedule.hpp for what it means."""
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
    symmetry: str  # "none", "rotation", "exclusive_or"
    rounds: list[list[Step]]

def algorithms() -> list[AlgorithmInfo]: ...
def check_algorithm(collective: str, name: str, size: int = 0) -> None:
    """ValueError unless calls of `size` ranks (0: any number) may ask for it: a built-in, or "shared"."""

def schedule(collective: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule: ...
def prove(schedules: Sequence[Schedule]) -> str | None:
    """None if proved, else why not. Decides the operand orders that are open: the lowest rank's data comes first."""

def follow(schedules: Sequence[Schedule]) -> list[list[list[float]]]:
    """0 to 1, how complete block `b` of rank `r` is when its round `i` begins: `[r][i][b]`, with one more entry for the
    end. Raises ValueError if ranks wait for each other for ever."""

def digest(schedules: Sequence[Schedule]) -> bytes:
    """16 bytes, equal only for equal schedules of all ranks."""

def price(schedules: Sequence[Schedule], nbytes: int, network: Network, segment: int = 0, window: int = 1) -> Price:
    """Of the schedules of all ranks, each on a host of its own. segment: bytes of an instance, 0: all in one."""

class Menu:
    """Every built-in way to run a collective on some ranks, priced (csrc/collectives/choose.hpp)."""
    def __init__(self, collective: str, size: int, hosts: Sequence[int] | None, network: Network) -> None:
        """hosts: of each rank; None: each has one of its own."""
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
        """What `name` stands for ("": all), each with its cheapest cut; segment, window: where they are fixed.
        memory: also where the ranks of a host share memory. wire: what float32 travels as (wire_code)."""

def reduces(dtype: int, op: int) -> bool: ...  # whether the dtype has that op, element by element
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
def digests(addresses: Sequence[int], nbytes: Sequence[int]) -> bytes: ...  # uint64 each (kernels/digest.hpp)
def instruction_set() -> str: ...

class TraceEvent(NamedTuple):
    begin_ns: int
    end_ns: int
    bytes: int
    rank: int
    thread: int  # 0 caller, 1 worker
    lane: int  # of a pipeline whose lanes overlap in time; -1: none
    category: str  # csrc/base/trace.hpp has the list
    name: str
    detail: str  # of "run": the path that ran: "ring", "shared", "local" ...

def trace_enable(on: bool) -> None: ...

class TraceEvents:
    """Events as the core keeps them."""
    def __len__(self) -> int: ...
    def as_list(self) -> list[TraceEvent]: ...

def trace_drain() -> TraceEvents: ...

class TraceText:
    """One thread at a time."""
    def __init__(self, rank: int, mark_cycles: bool) -> None: ...
    def row(self, name: str) -> int:
        """The number of a tensor's row; a new row is told of in the next text."""
    def text(self, events: TraceEvents | None = None) -> bytes:
        """Rows that are new, and the events, with commas between them; may be empty."""

def trace_dropped() -> int: ...
def wire_formats() -> tuple[str, ...]: ...
def wire_code(name: str, mode: int = -1, group: int = -1, amount: float = -1) -> int:
    """What names the format to the core; what is negative is as usual. Raises ValueError if there is none such."""

def wire_ratio(code: int, dtype: int) -> float:
    """Bytes sent for each byte of data of this dtype; 1: it travels as it is."""

def wire_rounds(code: int) -> bool:
    """Whether it does no more than round, and so has nothing to hold back."""

def wire_text(code: int) -> str: ...  # with parameters

class Feedback:
    """What encoders hold back (csrc/codecs/feedback.hpp)."""
    def __init__(self, counts: Sequence[int]) -> None: ...
    def undo(self, tensor: int, first: int = 0, count: int | None = None) -> None: ...
    def undo_all(self) -> None: ...
    def scale(self, by: float) -> None: ...
    def residual(self, tensor: int = 0) -> tuple[int, int]: ...  # address, elements
    def count(self, tensor: int = 0) -> int: ...
    def begin(self, tensor: int = 0) -> None: ...

class Codec:
    """A wire format's encoder and decoder, of arrays at addresses: for those who measure it."""
    def __init__(self, code: int, dtype: int, feedback: Feedback | None = None) -> None: ...
    def capacity(self, count: int) -> int: ...
    def encode(self, block: int, count: int, wire: int) -> int:
        """Bytes; the block becomes what they decode to."""
    def decode(self, wire: int, nbytes: int, block: int, count: int, add: bool) -> None: ...

def open_devices(library: str, nccl: str) -> int:
    """Loads CUDA's driver, once. How many GPUs there are. ValueError: there is none. nccl: its library."""

def give_kernels(module: str, image: bytes) -> None:
    """PTX, before any array of a GPU is used."""

def device_copy(device: int, to: int, source: int, nbytes: int, stream: int, wait: bool) -> None:
    """Between any two addresses, in the stream's order; `wait`: it has been done when this returns."""

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
    """Elements of `size` bytes from where `strides`, of bytes, say to where `to_strides` say; nobody waits."""

def device_pack(
    device: int, sources: Sequence[int], destinations: Sequence[int], counts: Sequence[int], dtype: int, stream: int
) -> None:
    """Copies arrays of a dtype (its number in DTYPES), by one kernel for up to 128 of them, in the stream's order."""

def device_of(address: int) -> int: ...  # the GPU in whose memory it is; -1: none
def device_capturing(device: int, stream: int) -> bool:
    """Into a CUDA graph."""

class DeviceOrder:
    """Of one call's buffers on a device: behind what the streams hold when this is made."""
    def __init__(self, device: int, streams: Sequence[int], host_output: bool = False) -> None: ...
    def join(self, stream: int) -> None:
        """What comes next on the stream comes behind the result, once the call has ended. The host does not wait."""
    def hold(self, stream: int) -> None:
        """What comes next on the stream comes behind what the order's streams held."""
    def wait(self) -> None: ...  # once the call has ended: until its result is there
    def over(self) -> bool:
        """Once the call has ended: whether its result is there, and the buffers may go."""

class DeviceMemory:
    """Freed with this."""

    address: int
    nbytes: int
    device: int
    def __init__(self, device: int, nbytes: int) -> None: ...

class Request:
    """What a caller asks for: filled by name, once, and handed down to a channel, a queue or the engine as it is.

    finish(operation) makes the result and keeps the buffers alive (operation: None for an ordered call).
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
        """For another call on the same arrays of a GPU, in an order of its own."""
    collective: int
    name: str
    algorithm: str  # "": chosen

def array_memory(array: object) -> int:
    """The address of a NumPy array: several times faster than `array.ctypes.data`, on the path of every call."""

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
        """`library`: of this MPI, as ringcomm._src.platform.mpi_library.describe finds it."""
    @staticmethod
    def threads(hub: ThreadsHub, rank: int) -> Transport: ...
    rank: int
    size: int
    tag_limit: int
    def counts(self) -> tuple[list[int], list[int]]:
        """Messages sent to each rank, and received from each, since the transport was made."""

class Processes:
    """Processes of this host, by number, and which of them have ended."""
    def __init__(self) -> None: ...
    def watch(self, pid: int) -> None: ...
    def dead(self) -> set[int]: ...

class Node:
    """The arenas of this host's ranks, mapped."""
    def __init__(self, rank: int, fds: Sequence[int]) -> None: ...
    @staticmethod
    def make_arena() -> int: ...  # a file descriptor, the caller's to close
    @staticmethod
    def for_threads(size: int) -> list[Node]: ...
    rank: int
    size: int
    def reserve_leader_scratch(
        self, slot: int
    ) -> None: ...  # what a slot needs for ranks of several hosts to compare calls
    def kill(self, rank: int) -> None:
        """For ranks that are threads: that one sends and receives nothing more."""
    def watch(self, pidfds: Sequence[int]) -> None: ...
    def dead(self) -> list[int]: ...
    def allocate(self, nbytes: int) -> tuple[int, int]: ...  # (offset, address)
    def free(self, offset: int) -> None: ...
    def address(self, rank: int, offset: int) -> int: ...
    def offset_of(self, address: int, nbytes: int) -> int | None: ...

class SharedMemory:
    """Memory in this rank's arena, until nobody holds it any more."""

    address: int
    nbytes: int
    def __init__(self, node: Node, nbytes: int) -> None: ...

def start_guardian(
    guarded: Sequence[tuple[int, int, str]], to: int, after: int, grace: int, command: Sequence[str]
) -> int:
    """Forks a process that names the first rank of this host to end, and ends the job (csrc/shm/guardian.hpp): pidfd,
    connection and line of each, and what follows. Returns its process id."""

def set_time_slice(ns: int) -> bool:
    """Of this thread and those that it starts (csrc/base/time_slice.hpp)."""

class Worker:
    ...
    def __init__(self, threaded: bool) -> None: ...
    threaded: bool
    def help(self) -> None: ...
    def stop(self) -> None: ...

class Account:
    """What has been moved (csrc/base/account.hpp)."""
    def __init__(self, timed: bool) -> None: ...
    def entries(self) -> list[tuple[str, str, list[int]]]:
        """Operation, algorithm, and its numbers: calls; messages and bytes sent; received; bytes of memory; nanoseconds
        waited, lasted."""

class ChannelConfig(NamedTuple):
    """Of a channel, or of an engine and its channels."""

    options: Config
    network: Network
    hosts: Sequence[int]  # of each rank of the transport; empty: each has one of its own
    rules: Sequence[Rule]
    own: CustomAlgorithms | None = None
    account: Account | None = None  # with nobody else in it at the same time; None: one of its own
    spin_ns: int = 0  # that a caller keeps its core while it waits

class Rule(NamedTuple):
    """Calls of so many bytes on so many ranks run this, all bounds included; "" and 0: chosen."""

    collective: str
    from_bytes: int
    to_bytes: int
    from_ranks: int
    to_ranks: int
    algorithm: str
    segment: int

class CustomAlgorithms:
    """Schedules of users' algorithms that this process's ranks may run (csrc/collectives/custom_algorithms.hpp)."""
    def __init__(self) -> None: ...
    def add(self, name: str, schedule: Schedule) -> None: ...

SLOTS: int

class Channel:
    """One ordered stream of collective calls (csrc/collectives/channel.hpp)."""
    def __init__(
        self,
        transport: Transport,
        peers: Sequence[int],
        me: int,
        first_tag: int,
        tag_count: int,
        node: Node | None,
        slot: int,
        config: ChannelConfig,
        worker: Worker | None = None,
    ) -> None:
        """`worker`: whose sources get turns while a call waits, where it has no thread of its own."""
    def choose(self, request: Request) -> str: ...  # by its collective, dtype, op and count
    def run(self, request: Request) -> None:
        """Ctrl-C raises KeyboardInterrupt and breaks the channel."""
    def run_messages(self, schedule: Schedule, data: int, nbytes: int, segment: int, window: int) -> None:
        """Sends and receives as the schedule says, on a buffer in segments: no call, for who measures messages."""
    def try_cached(
        self,
        collective: int,
        array: Any = None,
        out: Any = None,
        root: Any = 0,
        cache_key: Sequence[int] | None = None,
        here: bool = True,
        op: int = 1,
        pre: float = 1.0,
        post: float = 1.0,
    ) -> Any:
        """A call like a remembered one, by the algorithm that is chosen, without a name.

        Returns its result, made here if `out` is None (not `here`: there is none); NotImplemented, and nothing at all
        has happened, if no call like it is remembered; a list, and nothing else has happened, if ranks gave other
        numbers than remembered in the exchange that comes first: those that this rank was given.
        """
    def remember(
        self,
        array: Any,
        shape: tuple[int, ...] | None,
        request: Request,
        exchange: tuple[Request, Sequence[int], Sequence[int]] | None = None,
        cache_key: Sequence[int] | None = None,
    ) -> None:
        """Further calls like this one may be plain. `array` is what the caller gave, None if there is none; `shape` the
        result's, None if there is none; `exchange`: (request, numbers sent, numbers received) of the
        call that comes first; `cache_key`: numbers from the caller that the call depends on."""
    def device_route_statuses(self) -> dict[str, str]:
        """How calls on GPUs can go beside through the host's memory, best first, each with why not; empty until the
        ranks have agreed, in the first such call."""
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # by process number
    broken: str | None
    def leave(self) -> None: ...

class BlockPool:
    """Blocks of a few sizes in this rank's arena, used again and again (csrc/shm/block_pool.hpp)."""
    def __init__(self, node: Node) -> None: ...
    def serve(self, nbytes: int, more: int) -> None: ...
    in_use: int

def serve_library(library: str) -> bool:
    """Makes a loaded library take big blocks from the pools that serve, for the life of the process; False: it cannot
    be done here (csrc/shm/served_memory.hpp)."""

def serve_from(pool: BlockPool) -> None: ...
def serve_no_more_from(pool: BlockPool) -> None: ...
def numpy_memory(node: Node) -> Any: ...  # a handler, in a capsule, that allocates in this rank's arena
def set_numpy_memory(handler: Any) -> Any: ...  # the handler until now

class Operation:
    ...
    name: str
    def done(self) -> bool: ...
    def over(self) -> bool:  # done, and nothing is on its way to buffers on a GPU: they may go
        """Nothing uses the buffers any more."""
    def wait(self, seconds: float = -1) -> bool: ...  # negative: for ever; Ctrl-C raises
    def check(self) -> None: ...  # raises what the operation met
    counts: list[int]
    last_joined: int  # of a join: the world's rank that was last
    def output(self) -> tuple[int, int] | None: ...  # (address, bytes), alive as long as this object

class Plan:
    """The buckets of a training step, in a fixed order (csrc/engine/engine.hpp)."""
    def begin(self) -> None: ...
    def takes_stretches(self, bucket: int) -> bool: ...
    def place(self, bucket: int, stretch: int, address: int) -> None: ...
    def ready(self, bucket: int) -> None: ...
    def ready_at(self, bucket: int, order: DeviceOrder) -> None: ...  # one on a GPU
    def finish(self, present: bytes) -> Operation: ...  # of the result, counts: per item, how many ranks had it
    def feedback(self) -> Feedback | None: ...  # of its buckets; ValueError while a step is under way
    def close(self) -> None: ...

class Queue:
    """Non-blocking calls of a channel, run by the worker in the order submitted."""
    def __init__(self, worker: Worker, channel: Channel) -> None: ...
    def submit(self, request: Request, name: str | None = None, address: int = 0) -> Operation:
        """With a name: of a call in place that has been made before, under this name and on other memory."""
    def close(self) -> None: ...

class Engine:
    ...
    def __init__(self, worker: Worker, transport: Transport, config: ChannelConfig) -> None: ...
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # by process number
    def lost(self) -> list[int]: ...  # whom a fatal error named
    def add_set(self, ranks: Sequence[int], node: Node | None, slot: int) -> int: ...
    def remove_set(self, set_id: int) -> None: ...
    def submit(self, set_id: int, request: Request) -> Operation: ...
    def submit_group(self, set_id: int, requests: Sequence[Request]) -> list[Operation]: ...
    def join(self, set_ids: Sequence[int]) -> list[Operation]: ...  # each done when all ranks of its set have joined
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
    ) -> Plan: ...
    def has_room_for_plan(self, set_id: int) -> bool: ...
    def leave(self) -> None: ...
    def pending(self) -> list[str]: ...

class ArrayKey:
    """What an array has in common with another, for a request in place for that one to serve it too: it is of the very
    class `cls`, each attribute in `same` is the very object given and each in `equal` equals it, each method in `holds`
    gives true and each in `fails` false; the method `address` tells where it lies."""
    def __init__(
        self,
        cls: type,
        same: dict[Any, Any],
        equal: dict[Any, Any],
        holds: tuple[Any, ...],
        fails: tuple[Any, ...],
        address: str,
    ) -> None: ...
    def of(self, array: Any) -> int:  # where it lies; -1: it is not like that one
        """Where `array` lies; -1: it is not like that one."""

class DlpackKey(ArrayKey):
    """The same of C-contiguous arrays in the host's memory whose class gives DLPack's table of functions."""
    def __init__(self, array: Any, fails: tuple[Any, ...]) -> None: ...
    def of(self, array: Any) -> int: ...

class NdarrayKey(ArrayKey):
    """The same of plain NumPy arrays, told by their heads."""
    def __init__(self, array: Any) -> None: ...
    def of(self, array: Any) -> int: ...

def ndarray_key(array: Any) -> ArrayKey | None:
    """Of a NumPy array, told by its head; None for what is none, or not contiguous."""

def keep_until_done(operations: list[Any], buffers: object) -> None:
    """Without operations: of a call that has failed, until MPI moves nothing of failed calls."""

def reap_finished() -> None:
    """Of what is kept so, whatever is done."""

class InPlaceHandle(Handle[Any]):
    """A handle of one operation whose result is the array that it was given."""

    name: str
    def test(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    result: Any

class _Remembered:
    """A request in place, and the arrays that it is right for."""

class NamedCalls:
    """In-place requests of one process set, by the caller's names: what is submitted again need not be made again."""
    def __init__(self, engine: Engine | None, set_id: int) -> None: ...  # None: remembers nothing
    def again(
        self, name: object, array: Any, op: object, average: object, pre: float, post: float
    ) -> InPlaceHandle | None:
        """Submits; None, and nothing has happened, if no such operation on an array like this is remembered."""
    def remember(
        self, name: object, op: object, pre: float, post: float, request: Request, like: ArrayKey
    ) -> None: ...  # op: compared by identity

class SetLink:
    """A process set as graphs know it: they outlive ``shutdown`` (csrc/graph_ops/set_link.hpp)."""
    def __init__(self) -> None: ...
    def connect(self, engine: Engine, set_id: int, rank: int, size: int) -> None: ...
    def disconnect(self) -> None: ...
    def due(self, name: str, every: int) -> int:
        """The number of this run if replicas are compared in it, else 0."""
    def restart(self) -> None: ...  # counts of runs

class GraphOpResult:
    """Memory of the core, 64-byte aligned, that lives as long as this."""

    address: int
    nbytes: int
    dtype: int
    shape: tuple[int, ...]

class GraphOp:
    """A place in a graph that communicates (csrc/graph_ops/graph_op.hpp). Known by its number until it is removed."""

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
        """Now, for Python. inputs: (address, dtype, shape)."""
    def residual(self, tensor: int) -> bytes:
        """float32 elements that this rank's encoders owe (csrc/graph_ops/left_out.hpp). Between runs."""
    def set_residual(self, tensor: int, values: int, count: int) -> None: ...
    def raise_failure(self) -> None:
        """Raises what the last run that failed has met, once."""
    def remove(self) -> None: ...

def graph_op_functions() -> int:
    """The address of the table of functions for frameworks' libraries (csrc/graph_ops/graph_op_functions.h)."""

ANY_SOURCE: int
ANY_TAG: int
PROC_NULL: int

class Status:
    """Of a message: who sent it, with which tag, how long it is."""

    source: int
    tag: int
    nbytes: int
    cancelled: bool
    def count(self, dtype: Any = "uint8") -> int:
        """Elements of ``dtype``. ValueError if the bytes are no whole number of them."""

class MessageRequest:
    """A send or receive under way. Its array stays alive until it is done."""
    def test(self) -> bool:
        """Whether it is done; lets messages move. What it met is raised by wait()."""
    def wait(self, timeout: float | None = None) -> Status:
        """Waits until it is done. TimeoutError after so many seconds: it goes on."""
    name: str  # "send(dest=1, tag=0) of 8 bytes"
    def cancel(self) -> bool:
        """Takes back a receive that no message has matched: it is then done, and its status is ``cancelled``."""

class Messages:
    """A communicator's messages. Arrays are (address, bytes, what keeps them), or NumPy's own."""
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
    def isend(self, x: Any, dest: int, tag: int, among: str = "") -> MessageRequest: ...
    def irecv(self, out: Any, source: int, tag: int, among: str = "") -> MessageRequest: ...
    def probe(self, source: int, tag: int, waits: bool) -> Status | None: ...
    def sent(self) -> list[int]:
        """Messages to each rank so far; empty where all ranks share memory."""
    def close(self, sent_here: Sequence[int]) -> list[str]:
        """Texts of what was never received, or has not ended. `sent_here`: what each rank's sent() says of this one."""
    def leave(self) -> list[str]: ...  # the same
    def watch(self, processes: Processes, rank_of: dict[int, int]) -> None: ...  # by process number

RULES: tuple[str, ...]
ARRIVALS: tuple[str, ...]

class RuleOptions:
    """A rule, and its options (csrc/kernels/update.hpp)."""

    rule: int
    def __init__(self, rule: str, **options: float) -> None: ...
    def set(self, name: str, value: float) -> None: ...
    states: int

def update(how: RuleOptions, weights: int, gradient: int, result: int, count: int) -> None:
    """Of float32 arrays at addresses, by a rule without state: for those who measure it."""

class Clocks:
    """How far each worker is (csrc/param_server/clocks.hpp); None: it has finished."""
    def __init__(self, memory: int, workers: int, node: Node | None, of_host: Sequence[int] = ()) -> None: ...
    @staticmethod
    def bytes(workers: int) -> int: ...
    def set(self, worker: int, clock: int | None) -> None: ...
    def of(self, worker: int) -> int | None: ...
    def live(self) -> int: ...
    def wait(self, worker: int, clock: int, seconds: float) -> bool: ...  # worker -1: all of them
    def wake(self) -> None: ...
    def ticks(self) -> int: ...
    def sleep(self, seen: int, seconds: float) -> None: ...
    def lost(self) -> list[int]: ...

class Shard:
    """Weights that any rank of the host applies a rule to (param_server/shard.hpp). `many` > 0: gradients are gathered,
    in `sums` sums: one, or each worker's own, of which this view's is number `sum`. Arrays are addresses; 0: none."""
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
    ) -> int: ...  # the version before
    def apply_ranges(
        self, how: RuleOptions, ranges: int, many: int, gradient: int, pulled: int, result: int
    ) -> int: ...
    def gather(self, how: RuleOptions, clock: int, gradient: int, clocks: Clocks) -> str:
        """One of ARRIVALS."""
    def settle(self, how: RuleOptions, clocks: Clocks) -> bool: ...
    def claim(self, clocks: Clocks, sum: int) -> int: ...  # how many have been gathered; 0: not enough yet
    def release(self) -> None: ...
    def average_with(self, other: Shard) -> tuple[int, int]: ...  # versions of both before it

class Asked(Operation):
    """Of a server. Once it is done: the version before, gathered updates made, and what became of the gradient."""

    version: int
    group: int
    arrival: str

class StoreService:
    """A store between ranks that share no memory (csrc/param_server/service.hpp). Every rank makes one."""
    def __init__(self, engine: Engine) -> None: ...
    def serve(
        self, number: int, shard: Shard | None, clocks: Clocks, ranks: Sequence[int], how: RuleOptions | None
    ) -> None: ...
    def forget(self, number: int) -> None: ...
    def ask(
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
    ) -> Asked: ...

class HostLock:
    """A lock in shared memory, 64 zeros at first (csrc/param_server/lock.hpp). It must outlive the object."""
    def __init__(self, memory: int, node: Node | None, rank: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
