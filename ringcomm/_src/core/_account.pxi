# What has been moved, counted.
cdef extern from "base/account.hpp" namespace "ringcomm" nogil:
    cdef cppclass CEntry "ringcomm::Entry":
        string operation, algorithm
        vector[int64_t] numbers()
    cdef cppclass CAccount "ringcomm::Account":
        vector[shared_ptr[CEntry]] entries()


cdef class Account:
    """What has been moved (csrc/base/account.hpp)."""
    cdef shared_ptr[CAccount] it

    def __init__(self, cbool timed):
        self.it = make_shared[CAccount](timed)

    def entries(self) -> list[tuple[str, str, list[int]]]:
        """Operation, algorithm, and its numbers: calls; messages and bytes sent; received; bytes of memory; nanoseconds
        waited, lasted."""
        cdef vector[shared_ptr[CEntry]] found = self.it.get().entries()
        return [(found[i].get().operation.decode(), found[i].get().algorithm.decode(), list(found[i].get().numbers()))
                for i in range(found.size())]
