# Transports, which send messages between ranks: through MPI, or between threads in tests.
cdef extern from "border/transport.hpp":
    shared_ptr[CTransport] c_mpi_transport "ringcomm_border::mpi_transport"(const string&, uint64_t, int, int, int, MpiLibrary) except +translate

cdef extern from "transport/transport.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTransport "ringcomm::Transport":
        int rank()
        int size()
        int tag_limit()
        CMessageCounts counts()
    cdef cppclass CMessageCounts "ringcomm::MessageCounts":
        vector[uint64_t] sent, received

cdef extern from "transport/mpi.hpp" namespace "ringcomm" nogil:
    cdef cppclass MpiLibrary:
        size_t handle_size, status_size
        uint64_t byte_type, null_request
        size_t status_source_offset, status_error_offset
        int any_source, undefined, success
    size_t orphaned_messages()

cdef extern from "transport/threads.hpp" namespace "ringcomm" nogil:
    cdef cppclass CThreadsHub "ringcomm::ThreadsHub":
        pass
    shared_ptr[CThreadsHub] make_threads_hub(int size) except +translate
    shared_ptr[CTransport] make_threads_transport(shared_ptr[CThreadsHub] hub, int rank) except +translate
    void threads_kill(CThreadsHub& hub, int rank) except +translate


cdef class ThreadsHub:
    cdef shared_ptr[CThreadsHub] it

    def __init__(self, int size):
        self.it = make_threads_hub(size)

    def kill(self, int rank) -> None:
        threads_kill(dereference(self.it), rank)


cdef class Transport:
    cdef shared_ptr[CTransport] it

    @staticmethod
    def mpi(
            str extension_path, uint64_t comm, int rank, int size, int tag_limit, *, size_t handle_size,
            size_t status_size, uint64_t byte_type, uint64_t null_request, size_t status_source_offset,
            size_t status_error_offset, int any_source, int undefined) -> Transport:
        """Makes a transport through MPI; platform.mpi_library.describe returns the keywords."""
        cdef MpiLibrary library
        library.handle_size, library.status_size = handle_size, status_size
        library.byte_type, library.null_request = byte_type, null_request
        library.status_source_offset, library.status_error_offset = status_source_offset, status_error_offset
        library.any_source, library.undefined, library.success = any_source, undefined, 0
        cdef Transport made = Transport.__new__(Transport)
        made.it = c_mpi_transport(extension_path.encode(), comm, rank, size, tag_limit, library)
        return made

    @staticmethod
    def threads(ThreadsHub hub not None, int rank) -> Transport:
        cdef Transport made = Transport.__new__(Transport)
        made.it = make_threads_transport(hub.it, rank)
        return made

    @property
    def rank(self) -> int: return self.it.get().rank()
    @property
    def size(self) -> int: return self.it.get().size()
    @property
    def tag_limit(self) -> int: return self.it.get().tag_limit()

    def counts(self) -> tuple[list[int], list[int]]:
        """Returns the numbers of messages sent to and received from each rank since creation."""
        cdef CMessageCounts counts = self.it.get().counts()
        return list(counts.sent), list(counts.received)
