# The ranks of a host: the memory that they share, detection of dead processes, and the guardian.
from posix.unistd cimport getpid

cdef extern from "shm/node.hpp" namespace "ringcomm" nogil:
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

cdef extern from "base/time_slice.hpp" namespace "ringcomm" nogil:
    cbool c_set_time_slice "ringcomm::set_time_slice"(int64_t)

cdef extern from "shm/doorbell.hpp" namespace "ringcomm" nogil:
    void c_mark_failed "ringcomm::mark_failed"(CNode&, int rank)

cdef extern from "shm/processes.hpp" namespace "ringcomm" nogil:
    cdef cppclass CProcesses "ringcomm::Processes":
        void watch(int pid) except +translate
        vector[int] dead() except +translate

cdef extern from "collectives/consistency/consistency_check.hpp" namespace "ringcomm" nogil:
    void c_reserve_leader_scratch "ringcomm::reserve_leader_scratch"(CNode&, int slot) except +translate

cdef extern from "shm/guardian.hpp" namespace "ringcomm" nogil:
    cdef cppclass CGuarded "ringcomm::Guarded":
        int pidfd, connection
        string line
    struct CDeathAction "ringcomm::DeathAction":
        int to, after, grace
        vector[string] command
    int c_start_guardian "ringcomm::start_guardian"(const vector[CGuarded]& guarded, const CDeathAction& action) except +translate


cdef class Processes:
    """A set of this host's processes, by id, that detects which of them ended."""
    cdef shared_ptr[CProcesses] it

    def __init__(self):
        self.it = make_shared[CProcesses]()

    def watch(self, int pid) -> None:
        self.it.get().watch(pid)

    def dead(self) -> set[int]: return set(self.it.get().dead())


cdef class Node:
    """The mapped arenas of this host's ranks."""
    cdef shared_ptr[CNode] it

    def __init__(self, int rank, fds: Sequence[int]):
        cdef vector[int] all_fds = fds
        self.it = make_shared[CNode](rank, all_fds)

    @staticmethod
    def make_arena() -> int:  # a file descriptor, which the caller closes
        return c_make_arena()

    @staticmethod
    def for_threads(int size) -> list[Node]:
        cdef vector[shared_ptr[CNode]] nodes = c_for_threads(size)
        cdef Node node
        out = []
        for i in range(size):
            node = Node.__new__(Node)
            node.it = nodes[i]
            out.append(node)
        return out

    @property
    def rank(self) -> int: return self.it.get().rank()
    @property
    def size(self) -> int: return self.it.get().size()

    def reserve_leader_scratch(self, int slot) -> None:  # for consistency checks between hosts
        c_reserve_leader_scratch(self.it.get()[0], slot)

    def kill(self, int rank) -> None:
        """Simulates the death of a rank, if ranks are threads: the rank no longer communicates."""
        c_mark_failed(self.it.get()[0], rank)

    def watch(self, pidfds: Sequence[int]) -> None:
        self.it.get().watch(pidfds)

    def dead(self) -> list[int]:
        return list(self.it.get().dead())

    def allocate(self, size_t nbytes) -> tuple[int, int]:  # (offset, address)
        cdef uint64_t offset = self.it.get().allocate(nbytes)
        return offset, <uintptr_t>self.it.get().at(self.it.get().rank(), offset)

    def free(self, uint64_t offset) -> None:
        self.it.get().free(offset)

    def address(self, int rank, uint64_t offset) -> int:
        return <uintptr_t>self.it.get().at(rank, offset)

    def offset_of(self, uintptr_t address, size_t nbytes) -> int | None:
        cdef uint64_t offset = self.it.get().offset_of(<const void*>address, nbytes)
        return None if offset == kPrivate else offset


cdef class SharedMemory:
    """Memory in this rank's arena, which is freed with this object."""
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
        # A forked child's copy does not own the memory: freeing would release pages of the file
        # that the parent uses.
        if self.node and self.pid == getpid():
            self.node.get().free(self.offset)


cdef shared_ptr[CNode] node_of(node) except *:
    cdef shared_ptr[CNode] none
    return none if node is None else (<Node?>node).it


def start_guardian(
        guarded: Sequence[tuple[int, int, str]], int to, int after, int grace, command: Sequence[str]) -> int:
    """Forks the guardian, which reports the first rank of this host that ends, and ends the job.

    `guarded`: (pidfd, connection, line) of each rank. The other arguments are those of DeathAction
    (csrc/shm/guardian.hpp). Returns the guardian's process id.
    """
    cdef vector[CGuarded] processes
    cdef CGuarded process
    cdef CDeathAction action
    for process.pidfd, process.connection, line in guarded:
        process.line = line.encode()
        processes.push_back(process)
    action.to, action.after, action.grace = to, after, grace
    for word in command:
        action.command.push_back(word.encode())
    return c_start_guardian(processes, action)


def set_time_slice(int64_t ns) -> bool:
    """Sets the time slice of this thread and of threads that it starts (base/time_slice.hpp)."""
    return bool(c_set_time_slice(ns))
