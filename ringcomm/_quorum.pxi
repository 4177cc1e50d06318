# Operations that run once a quorum of ranks has come.
cdef extern from "engine/standing.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTaken "ringcomm::Standing::Taken":
        uint64_t rounds
        cbool included
    cdef cppclass CStanding "ringcomm::Standing":
        void offer(const void*)
        cbool has_results()
        CTaken take(void*)
        void save(void*, void*)
        void restore(const void*, const void*)

cdef extern from "border/quorum.hpp" namespace "ringcomm_border" nogil:
    shared_ptr[CPending] c_stand "ringcomm_border::stand"(CEngine&, int, CNamed, int, cbool) except +translate
    CStanding& c_standing_of "ringcomm_border::standing_of"(const CPending&)


cdef class Standing:
    cdef shared_ptr[CPending] it
    cdef shared_ptr[CEngine] engine
    cdef shared_ptr[CWorker] worker
    cdef int set_id
    cdef object request

    def __init__(self, Engine engine not None, int set_id, Request request not None, int least, bint put):
        self.engine, self.worker, self.set_id, self.request = engine.it, engine.worker, set_id, request
        self.it = c_stand(engine.it.get()[0], set_id, request.it, least, put)

    @property
    def operation(self): return Operation.wrap(<shared_ptr[COperation]>self.it, self.worker)

    def offer(self, uintptr_t address):
        with nogil:
            c_standing_of(self.it.get()[0]).offer(<void*>address)

    def come(self, uintptr_t address):
        cdef shared_ptr[COperation] made
        with nogil:
            made = self.engine.get().come(self.set_id, self.it.get()[0], <void*>address)
        return Operation.wrap(made, self.worker) if made else None

    def has_results(self):
        return bool(c_standing_of(self.it.get()[0]).has_results())

    def take(self, uintptr_t address):
        cdef CTaken taken
        with nogil:
            taken = c_standing_of(self.it.get()[0]).take(<void*>address)
        return taken.rounds, bool(taken.included)

    def save(self, uintptr_t given, uintptr_t kept):
        c_standing_of(self.it.get()[0]).save(<void*>given, <void*>kept)

    def restore(self, uintptr_t given, uintptr_t kept):
        c_standing_of(self.it.get()[0]).restore(<void*>given, <void*>kept)

    def step_aside(self):
        self.engine.get().step_aside(self.set_id, self.it.get()[0])

    def close(self):
        self.engine.get().close(self.set_id, self.it)
