# Plans of training steps. Optimizers of the bindings begin a step, mark buckets ready, finish it.
cdef extern from "border/named.hpp":
    shared_ptr[CFeedback] c_feedback_of "ringcomm_border::feedback_of"(shared_ptr[CPlan]) except +translate

cdef extern from "engine/engine.hpp" namespace "ringcomm" nogil:
    cdef cppclass CPlanBucket "ringcomm::PlanBucket":
        pass
    cdef cppclass CPlan "ringcomm::Plan":
        void begin() except +translate
        void place(size_t, size_t, void*) except +translate
        void ready(size_t) except +translate
        void ready(size_t, shared_ptr[CDeviceLocation]) except +translate
        shared_ptr[COperation] finish(vector[uint8_t]) except +translate
        cbool takes_stretches(size_t) except +translate
        shared_ptr[COperation] part(size_t) except +translate
        void close() except +translate


cdef class Plan:
    """The buckets of a training step, in a fixed order (csrc/engine/engine.hpp)."""
    cdef shared_ptr[CPlan] it
    cdef shared_ptr[CWorker] worker

    def begin(self) -> None:
        self.it.get().begin()

    def takes_stretches(self, size_t bucket) -> bool:
        return bool(self.it.get().takes_stretches(bucket))

    def place(self, size_t bucket, size_t stretch, uintptr_t address) -> None:
        self.it.get().place(bucket, stretch, <void*>address)

    def ready(self, size_t bucket) -> None:
        self.it.get().ready(bucket)

    def ready_at(self, size_t bucket, DeviceOrder order not None) -> None:  # for a bucket on a GPU
        self.it.get().ready(bucket, order.it)

    def finish(self, bytes present not None) -> Operation:  # `counts` of the result: number of ranks that had each item
        cdef vector[uint8_t] items = present
        return Operation.wrap(self.it.get().finish(items), self.worker)

    def part(self, size_t part) -> Operation:  # finishes with a bucket of the step begun last, or the counts
        return Operation.wrap(self.it.get().part(part), self.worker)

    def feedback(self) -> Feedback | None:  # residuals of the plan's buckets; ValueError during a step
        cdef Feedback found = Feedback.__new__(Feedback)
        found.it = c_feedback_of(self.it)
        return found if found.it else None

    def close(self) -> None:
        with nogil:
            self.it.get().close()
