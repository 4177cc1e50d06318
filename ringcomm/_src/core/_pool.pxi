# Memory of this rank's arena for libraries that allocate memory themselves, and for NumPy's arrays.
cdef extern from "shm/block_pool.hpp" namespace "ringcomm" nogil:
    cdef cppclass CBlockPool "ringcomm::BlockPool":
        CBlockPool(shared_ptr[CNode])
        void serve(size_t, int) except +translate
        size_t in_use()

cdef extern from "shm/served_memory.hpp" namespace "ringcomm" nogil:
    cbool c_serve_library "ringcomm::serve_library"(string library) except +translate
    void c_serve_from "ringcomm::serve_from"(shared_ptr[CBlockPool]) except +translate
    void c_serve_no_more_from "ringcomm::serve_no_more_from"(const CBlockPool&) except +translate


cdef class BlockPool:
    """A pool of reusable blocks of a few sizes in this rank's arena (csrc/shm/block_pool.hpp)."""
    cdef shared_ptr[CBlockPool] it

    def __init__(self, Node node not None):
        self.it = make_shared[CBlockPool](node.it)

    def serve(self, size_t nbytes, int more) -> None:
        self.it.get().serve(nbytes, more)

    @property
    def in_use(self) -> int: return self.it.get().in_use()


def serve_library(library: str) -> bool:
    """Makes a loaded library allocate large blocks from pools, until the process ends.

    serve_from() adds a pool. Returns False if the library cannot be redirected
    (csrc/shm/served_memory.hpp).
    """
    return c_serve_library(library.encode())


def serve_from(BlockPool pool not None) -> None:
    c_serve_from(pool.it)


def serve_no_more_from(BlockPool pool not None) -> None:
    c_serve_no_more_from(pool.it.get()[0])


# ---- NumPy's arrays
cdef extern from "border/numpy_memory.hpp" namespace "ringcomm_border":
    object c_numpy_memory "ringcomm_border::NumpyMemory::make"(shared_ptr[CNode])
    object c_set_numpy_memory "ringcomm_border::NumpyMemory::set"(object handler)


def numpy_memory(Node node not None) -> Any:  # a handler, in a capsule, that allocates in this rank's arena
    return c_numpy_memory(node.it)


def set_numpy_memory(handler: Any) -> Any:  # returns the previous handler
    return c_set_numpy_memory(handler)
