# The worker, which gives turns to its sources of work: queues, engines and messages.
cdef extern from "engine/worker/worker.hpp" namespace "ringcomm" nogil:
    cdef cppclass CSource "ringcomm::Source":
        pass
    cdef cppclass CWorker "ringcomm::Worker":
        CWorker(cbool threaded) except +translate
        void add(shared_ptr[CSource]) except +translate
        void remove(const shared_ptr[CSource]&) except +translate
        void wake()
        void help()
        void hurry()
        void stop()
        cbool threaded()


cdef class Worker:
    cdef shared_ptr[CWorker] it

    def __init__(self, bint threaded):
        self.it = make_shared[CWorker](threaded)

    @property
    def threaded(self) -> bool: return self.it.get().threaded()

    def help(self) -> None:
        with nogil:
            self.it.get().help()

    def stop(self) -> None:
        with nogil:
            self.it.get().stop()
