# Requests: one call with its arguments. Python fills a request once and passes it unchanged to a
# channel, a queue, or the engine.
cdef extern from "engine/request.hpp" namespace "ringcomm" nogil:
    cdef cppclass CCall "ringcomm::Call":
        Collective collective
        DType dtype
        Op op
        int root
        string algorithm
        const void* input
        void* output
        size_t count
        vector[size_t] counts, receive_counts
        vector[void*] output_per_rank
        Scale pre, post
        CWire wire
        CFeedback* feedback
        string name
        uint64_t shape
        string shape_text
        cbool even
    cdef cppclass CNamedRequest "ringcomm::NamedRequest":
        CCall call
        size_t row, rows
        vector[size_t] splits
        int32_t priority

cdef extern from "border/device.hpp" nogil:
    void c_set_location "ringcomm_border::set_location"(CCall&, shared_ptr[CDeviceLocation])


cdef extern from "border/call_cache.hpp":
    cdef cppclass CCallSpan "ringcomm_border::Span":
        int64_t offset, read, written
        bint allows(const char*, const char*)


cdef class Request:
    """One call with its arguments, for a channel, a queue, or the engine.

    finish(operation) makes the result and keeps the buffers alive (operation: None for an ordered
    call).
    """
    cdef CNamedRequest it
    cdef public object finish
    cdef public bint nameless
    cdef object feedback
    cdef DeviceOrder order
    cdef CCallSpan span

    def __init__(
            self, int collective, int dtype, finish: Callable[..., Any] | None = None, *, int op=1, root: int = 0,
            str algorithm="", uintptr_t input=0, uintptr_t output=0, size_t count=0,
            counts: Sequence[int] | None = None, receive_counts: Sequence[int] | None = None, size_t row=1,
            size_t rows=0, splits: Sequence[int] | None = None, double pre=1, double post=1, uint64_t wire=0,
            str name="", shape: Any = None, DeviceOrder order=None, bint even=False, Feedback feedback=None,
            output_per_rank: Sequence[int] = (), span: Sequence[int] | None = None):
        cdef CCall* call = &self.it.call
        call.collective, call.dtype, call.op = <Collective>collective, <DType>dtype, <Op>op
        call.root = integer_of(root, COLLECTIVES[collective], "root")
        call.algorithm, call.name = algorithm.encode(), name.encode()
        call.input, call.output, call.count = <const void*>input, <void*>output, count
        call.pre.factor, call.post.factor = pre, post
        if counts is not None:
            call.counts = counts
        if receive_counts is not None:
            call.receive_counts = receive_counts
        cdef uintptr_t address
        for address in output_per_rank:
            call.output_per_rank.push_back(<void*>address)
        call.even = even
        call.wire = wire_of(wire)
        if feedback is not None:
            self.feedback = feedback
            call.feedback = feedback.it.get()
        if shape is not None:
            call.shape, call.shape_text = shape.hash, shape.text.encode()
        if order is not None:
            self.set_location(order)
        self.it.row, self.it.rows = row, rows
        if splits is not None:
            self.it.splits = splits
        if span is not None:
            self.span.offset, self.span.read, self.span.written = span
        self.finish = finish

    @property
    def host_output(self) -> bool: return self.it.call.output == NULL  # the core allocates the result

    @property
    def written(self) -> tuple[int, int]:
        """Address and size in bytes of the caller's memory that receives the result; read-only."""
        return <uintptr_t>self.it.call.output, self.span.written

    cpdef set_location(self, DeviceOrder order):
        """Sets the stream order, for another call on the same arrays of a GPU."""
        self.order = order
        c_set_location(self.it.call, order.it)

    @property
    def collective(self) -> int: return <int>self.it.call.collective

    @property
    def name(self) -> str: return self.it.call.name.decode()

    @name.setter
    def name(self, str name not None): self.it.call.name = name.encode()

    @property
    def algorithm(self) -> str: return self.it.call.algorithm.decode()  # "": the core chooses

    @algorithm.setter
    def algorithm(self, str algorithm not None): self.it.call.algorithm = algorithm.encode()

    @property
    def priority(self) -> int: return self.it.priority

    @priority.setter
    def priority(self, priority: Any): self.it.priority = integer_of(priority, "an operation", "priority")
