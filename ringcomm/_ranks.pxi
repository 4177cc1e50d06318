# Ranks: transports, the arenas of a host, and channels that run ordered calls.
cdef extern from "border/ranks.hpp":
    shared_ptr[CTransport] c_mpi_transport "ringcomm_border::mpi_transport"(const string&, uint64_t, int, int, int, MpiLibrary) except +translate
    shared_ptr[CTransport] c_threads_transport "ringcomm_border::threads_transport"(shared_ptr[CThreadsHub], int) except +translate
    shared_ptr[CChannel] c_make_channel "ringcomm_border::make_channel"(shared_ptr[CTransport], vector[int], int, int, int,
                                                                        shared_ptr[CNode], int, CChannelConfig) except +translate
    string c_why_broken "ringcomm_border::why_broken"(const CChannel&)
    string c_choose "ringcomm_border::choose"(CChannel&, CCall) except +translate
    void c_kill "ringcomm_border::kill"(const shared_ptr[CThreadsHub]&, int) except +translate
    int c_slots "ringcomm_border::slots"()

cdef extern from "transport/transport.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTransport "ringcomm::Transport":
        int rank()
        int size()

cdef extern from "transport/mpi.hpp" namespace "ringcomm" nogil:
    cdef cppclass MpiLibrary:
        size_t handle_size, status_size
        uint64_t byte_type, null_request
        size_t status_source_offset, status_error_offset
        int any_source, undefined, success

cdef extern from "transport/threads.hpp" namespace "ringcomm" nogil:
    cdef cppclass CThreadsHub "ringcomm::ThreadsHub":
        pass
    shared_ptr[CThreadsHub] make_threads_hub(int size) except +translate

cdef extern from "node/node.hpp" namespace "ringcomm" nogil:
    cdef cppclass CNode "ringcomm::Node":
        CNode(int rank, const vector[int]& fds) except +translate
        int rank()
        int size()
        uint64_t allocate(size_t nbytes) except +translate
        void free(uint64_t offset) except +translate
        uint64_t offset_of(const void* data, size_t nbytes)
        uint8_t* at(int rank, uint64_t offset)
        void watch(vector[int] pidfds) except +translate
        vector[int] dead()
    int c_make_arena "ringcomm::Node::make_arena"() except +translate
    vector[shared_ptr[CNode]] c_for_threads "ringcomm::Node::for_threads"(int size) except +translate
    uint64_t kPrivate

cdef extern from "call/own_algorithms.hpp" namespace "ringcomm" nogil:
    cdef cppclass COwnAlgorithms "ringcomm::OwnAlgorithms":
        void add(const string&, shared_ptr[const CSchedule]) except +translate

cdef extern from "node/processes.hpp" namespace "ringcomm" nogil:
    cdef cppclass CProcesses "ringcomm::Processes":
        void watch(int pid) except +translate
        vector[int] dead() except +translate

cdef extern from "call/comparison.hpp" namespace "ringcomm" nogil:
    void c_make_board "ringcomm::make_board"(CNode&, int slot) except +translate


cdef extern from "call/channel.hpp" namespace "ringcomm" nogil:
    cdef cppclass CRule "ringcomm::Rule":
        Collective collective
        size_t from_bytes, to_bytes, segment
        int from_ranks, to_ranks
        string algorithm
    cdef cppclass CChannelConfig "ringcomm::ChannelConfig":
        size_t segment_bytes, node_segment_bytes, window
        cbool check
        int64_t spin_ns
        CNetwork network
        vector[int] hosts
        string algorithm
        vector[CRule] rules
        shared_ptr[const COwnAlgorithms] own
        double stall_warn_seconds
    cdef cppclass CChannel "ringcomm::Channel":
        int rank()
        void run(CCall, cbool (*)() noexcept nogil) except +translate
        void leave()

from posix.unistd cimport getpid

SLOTS = c_slots()
ChannelConfig = namedtuple("ChannelConfig", "segment_bytes node_segment_bytes window check network hosts rules spin_ns stall_warn_seconds "
                           "algorithm own", defaults=(0, 0, "", None))
Rule = namedtuple("Rule", "collective from_bytes to_bytes from_ranks to_ranks algorithm segment")


cdef class OwnAlgorithms:
    cdef shared_ptr[COwnAlgorithms] it

    def __init__(self):
        self.it = make_shared[COwnAlgorithms]()

    def add(self, str name, Schedule schedule not None):
        self.it.get().add(name.encode(), <shared_ptr[const CSchedule]>make_shared[CSchedule](schedule.it))


cdef CChannelConfig channel_config(it) except *:
    cdef CChannelConfig config
    cdef CRule rule
    config.segment_bytes, config.node_segment_bytes, config.window = it.segment_bytes, it.node_segment_bytes, it.window
    config.check, config.spin_ns, config.stall_warn_seconds = it.check, it.spin_ns, it.stall_warn_seconds
    config.network = network_of(it.network)
    config.hosts = it.hosts
    config.algorithm = it.algorithm.encode()
    if it.own is not None:
        config.own = <shared_ptr[const COwnAlgorithms]>(<OwnAlgorithms?>it.own).it
    for one in it.rules:
        rule.collective = <Collective>position(COLLECTIVES, one.collective, "collective")
        rule.from_bytes, rule.to_bytes, rule.segment = one.from_bytes, one.to_bytes, one.segment
        rule.from_ranks, rule.to_ranks = one.from_ranks, one.to_ranks
        rule.algorithm = one.algorithm.encode()
        config.rules.push_back(rule)
    return config


cdef class ThreadsHub:
    cdef shared_ptr[CThreadsHub] it

    def __init__(self, int size):
        self.it = make_threads_hub(size)

    def kill(self, int rank):
        c_kill(self.it, rank)


cdef class Transport:
    cdef shared_ptr[CTransport] it

    @staticmethod
    def mpi(str extension_path, uint64_t comm, int rank, int size, int tag_limit, *, size_t handle_size, size_t status_size,
            uint64_t byte_type, uint64_t null_request, size_t status_source_offset, size_t status_error_offset, int any_source,
            int undefined):
        cdef MpiLibrary library
        library.handle_size, library.status_size = handle_size, status_size
        library.byte_type, library.null_request = byte_type, null_request
        library.status_source_offset, library.status_error_offset = status_source_offset, status_error_offset
        library.any_source, library.undefined, library.success = any_source, undefined, 0
        cdef Transport made = Transport.__new__(Transport)
        made.it = c_mpi_transport(extension_path.encode(), comm, rank, size, tag_limit, library)
        return made

    @staticmethod
    def threads(ThreadsHub hub not None, int rank):
        cdef Transport made = Transport.__new__(Transport)
        made.it = c_threads_transport(hub.it, rank)
        return made

    @property
    def rank(self): return self.it.get().rank()
    @property
    def size(self): return self.it.get().size()


cdef class Processes:
    cdef shared_ptr[CProcesses] it

    def __init__(self):
        self.it = make_shared[CProcesses]()

    def watch(self, int pid):
        self.it.get().watch(pid)

    def dead(self): return set(self.it.get().dead())


cdef class Node:
    cdef shared_ptr[CNode] it

    def __init__(self, int rank, fds):
        cdef vector[int] all_fds = fds
        self.it = make_shared[CNode](rank, all_fds)

    @staticmethod
    def make_arena():
        return c_make_arena()

    @staticmethod
    def for_threads(int size):
        cdef vector[shared_ptr[CNode]] nodes = c_for_threads(size)
        cdef Node one
        out = []
        for i in range(size):
            one = Node.__new__(Node)
            one.it = nodes[i]
            out.append(one)
        return out

    @property
    def rank(self): return self.it.get().rank()
    @property
    def size(self): return self.it.get().size()

    def make_board(self, int slot):
        c_make_board(self.it.get()[0], slot)

    def watch(self, pidfds):
        self.it.get().watch(pidfds)

    def dead(self):
        return list(self.it.get().dead())

    def allocate(self, size_t nbytes):
        cdef uint64_t offset = self.it.get().allocate(nbytes)
        return offset, <uintptr_t>self.it.get().at(self.it.get().rank(), offset)

    def free(self, uint64_t offset):
        self.it.get().free(offset)

    def address(self, int rank, uint64_t offset):
        return <uintptr_t>self.it.get().at(rank, offset)

    def offset_of(self, uintptr_t address, size_t nbytes):
        cdef uint64_t offset = self.it.get().offset_of(<const void*>address, nbytes)
        return None if offset == kPrivate else offset


cdef class SharedMemory:
    """Memory in this rank's arena, until nobody holds it any more."""
    cdef shared_ptr[CNode] node
    cdef uint64_t offset
    cdef int pid
    cdef readonly uintptr_t address
    cdef readonly size_t nbytes

    def __cinit__(self, Node node not None, size_t nbytes):
        self.offset = node.it.get().allocate(nbytes)
        self.node = node.it
        self.nbytes = nbytes
        self.pid = getpid()
        self.address = <uintptr_t>self.node.get().at(self.node.get().rank(), self.offset)

    def __dealloc__(self):
        # A forked child's copy is not the owner: freeing gives pages of the file back, which are its parent's too.
        if self.node and self.pid == getpid():
            self.node.get().free(self.offset)


cdef shared_ptr[CNode] node_of(node) except *:
    cdef shared_ptr[CNode] none
    return none if node is None else (<Node?>node).it


cdef class Channel:
    cdef shared_ptr[CChannel] it
    cdef bint busy  # a thread is in a call
    cdef PlainCalls known

    def __init__(self, Transport transport not None, peers, int me, int first_tag, int tag_count, node, int slot, config):
        self.it = c_make_channel(transport.it, peers, me, first_tag, tag_count, node_of(node), slot, channel_config(config))

    def choose(self, Request request not None):
        return c_choose(self.it.get()[0], request.it.call).decode()

    def run(self, Request request not None):
        cdef CCall call = request.it.call
        self.enter()
        cdef CChannel* channel = self.it.get()
        try:
            with nogil:
                channel.run(move(call), interrupted)
        finally:
            self.busy = False

    cdef int enter(self) except -1:
        """One thread at a time; the interpreter's lock makes looking and taking one step."""
        if self.busy:
            raise RuntimeError("another thread is in a call on this communicator; use one communicator per thread")
        self.busy = True
        return 0

    def plain(self, int collective, array, out, int op, int root, double pre, double post, told=None):
        """A call like a remembered one, by the algorithm that is chosen, without a name. Its result, made here if `out` is
        None; a list if ranks gave other numbers in the exchange that comes first: what this rank was given, and nothing
        else has happened; NotImplemented, and nothing at all has happened, if no call like it is remembered."""
        cdef vector[int64_t] numbers
        if told is not None:
            if type(told) is not list and type(told) is not tuple:
                return NotImplemented
            try:
                numbers = told
            except (TypeError, OverflowError):
                return NotImplemented
            if numbers.empty():  # which is remembered as nothing told
                return NotImplemented
        cdef CallSite* site = self.known.find(collective, <PyObject*>array, numbers)
        if site == NULL:
            return NotImplemented
        cdef bint here = collective != REDUCE or root == self.it.get().rank()
        if out is not None and here and not site.result.fits(<PyObject*>out, True):
            return NotImplemented
        self.enter()  # from here on nobody else looks at what is remembered
        cdef CChannel* channel = self.it.get()
        cdef CCall call
        try:
            if site.exchanges:
                call = site.exchange_call()
                with nogil:
                    channel.run(move(call), interrupted)
                if site.received != site.expected:
                    return site.received  # as a list
            if not here:
                out = array  # never written
            elif out is None and site.shape != NULL:
                out = new_array(<object>site.shape, <object>site.dtype)
            call = site.plain_call(<PyObject*>array, <PyObject*>out, op, root, pre, post)
            with nogil:
                channel.run(move(call), interrupted)
        finally:
            self.busy = False
        return out if here else None

    def remember(self, array, shape, Request request not None, exchange=None, told=None):
        """Further calls like this one may be plain. `array` is what the caller gave, None if there is none; `shape` the
        result's, None if there is none; `exchange`: (request, numbers sent, numbers received) of the
        call that comes first; `told`: numbers from the caller that the call depends on."""
        if not heads_are_known or self.busy:
            return
        if array is not None and not c_plain_array(<PyObject*>array, <PyTypeObject*>array_type):
            return
        cdef CallSite* site = self.known.take(request.collective)
        cdef vector[Py_ssize_t] dimensions
        site.call = request.it.call
        site.told.clear()
        if told is not None:
            site.told = told
        site.exchanges = exchange is not None
        if site.exchanges:
            first, site.sent, site.expected = exchange
            site.received.resize(site.expected.size())
            site.exchange = (<Request?>first).it.call
        if shape is not None:
            dimensions = shape
            site.result.learn(<PyObject*>array, dimensions)
            site.make_results(<PyObject*>shape, <PyObject*>array.dtype)
            dimensions = array.shape
        site.given.learn(<PyObject*>array, dimensions)  # last: only what is whole is found

    @property
    def broken(self):
        cdef string why = c_why_broken(self.it.get()[0])
        return why.decode() if why.size() else None

    def leave(self):
        cdef CChannel* channel = self.it.get()
        with nogil:
            channel.leave()


cdef extern from "node/guardian.hpp" namespace "ringcomm" nogil:
    cdef cppclass CGuarded "ringcomm::Guarded":
        int pidfd, connection
        string line
    int c_start_guardian "ringcomm::start_guardian"(const vector[CGuarded]& guarded, int to) except +translate


def start_guardian(guarded, int to):
    cdef vector[CGuarded] processes
    cdef CGuarded one
    for one.pidfd, one.connection, line in guarded:
        one.line = line.encode()
        processes.push_back(one)
    return c_start_guardian(processes, to)
