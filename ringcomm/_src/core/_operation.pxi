# Operations: the caller's handle of work that the worker does.
cdef extern from "border/named.hpp":
    cbool c_failed "ringcomm_border::failed"(const COperation&) nogil
    void c_check "ringcomm_border::check"(const COperation&) except +translate
    uintptr_t c_output_of "ringcomm_border::output_of"(const COperation&)

cdef extern from "engine/operation.hpp" namespace "ringcomm" nogil:
    cdef cppclass COperation "ringcomm::Operation":
        string name
        cbool done()
        cbool wait(double seconds)
        size_t output_bytes
        vector[size_t] counts
        int last_joined

cdef extern from "engine/worker/worker.hpp" namespace "ringcomm" nogil:
    cbool wait_for(COperation&, CWorker&, double seconds, cbool (*)() noexcept nogil) except +translate


cdef bint wait_until_done(shared_ptr[COperation] it, const shared_ptr[CWorker]& worker, double seconds) except -1:
    cdef cbool finished
    if it.get().done():
        return True
    with nogil:
        finished = wait_for(it.get()[0], worker.get()[0], seconds, interrupted)
    return finished


cdef int raise_failure(const shared_ptr[COperation]& it) except -1:
    if c_failed(it.get()[0]):
        c_check(it.get()[0])
    return 0


@freelist(64)
cdef class Operation:
    cdef shared_ptr[COperation] it
    cdef shared_ptr[CWorker] worker
    cdef DeviceOrder order  # None: the buffers are in the host's memory

    @staticmethod
    cdef Operation wrap(shared_ptr[COperation] it, shared_ptr[CWorker] worker):
        cdef Operation made = Operation.__new__(Operation)
        made.it = it
        made.worker = worker
        return made

    cdef Operation of(self, Request request):
        self.order = request.order
        return self

    @property
    def name(self) -> str: return self.it.get().name.decode()

    cpdef bint done(self) except -1:
        if self.it.get().done() or in_child:
            return self.it.get().done()
        if not self.worker.get().threaded():
            with nogil:
                self.worker.get().help()
        else:
            self.worker.get().hurry()
        return self.it.get().done()

    def over(self) -> bool:
        """Returns True if neither the core nor a copy to a GPU uses the buffers any more."""
        if not self.done() or (c_failed(self.it.get()[0]) and orphaned_messages() > 0):
            return False
        return self.order is None or c_landed(self.order.it)

    cpdef bint wait(self, double seconds=-1) except -1:  # negative: no limit; Ctrl-C raises
        return wait_until_done(self.it, self.worker, seconds)

    cpdef check(self):  # raises the operation's error
        raise_failure(self.it)

    @property
    def counts(self) -> list[int]: return list(self.it.get().counts)

    @property
    def last_joined(self) -> int: return self.it.get().last_joined  # for a join: the global rank that was last

    def output(self) -> tuple[int, int] | None:  # (address, bytes), valid as long as this object
        cdef uintptr_t address = c_output_of(self.it.get()[0])
        return None if address == 0 else (address, self.it.get().output_bytes)
