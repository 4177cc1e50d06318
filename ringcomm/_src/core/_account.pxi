# Counts of messages, bytes and time, for the statistics of communicators.
cdef extern from "base/account.hpp" namespace "ringcomm" nogil:
    cdef cppclass CEntry "ringcomm::Entry":
        string operation, algorithm
        vector[int64_t] numbers()
    cdef cppclass CAccount "ringcomm::Account":
        vector[shared_ptr[CEntry]] entries()


cdef class Account:
    """Counts of messages, bytes and time, by operation and algorithm (csrc/base/account.hpp)."""
    cdef shared_ptr[CAccount] it

    def __init__(self, cbool timed):
        self.it = make_shared[CAccount](timed)

    def entries(self) -> list[tuple[str, str, list[int]]]:
        """Returns (operation, algorithm, numbers) of each entry.

        The numbers are calls; messages and bytes sent; messages and bytes received; bytes of shared
        memory; bytes saved by encoding; and in ns: encoding, waiting, submission to completion.
        """
        cdef vector[shared_ptr[CEntry]] found = self.it.get().entries()
        return [(found[i].get().operation.decode(), found[i].get().algorithm.decode(), list(found[i].get().numbers()))
                for i in range(found.size())]
