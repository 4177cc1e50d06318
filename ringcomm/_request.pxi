# What a caller asks for: filled by name, once, and handed down to a channel, a queue or the engine as it is.
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
        vector[void*] apart
        Scale pre, post
        CWire wire
        CFeedback* feedback
        string name
        uint64_t shape
        string shape_text
        cbool even
    cdef cppclass CNamed "ringcomm::Named":
        CCall call
        size_t row, rows
        vector[size_t] splits

cdef extern from "border/device.hpp" nogil:
    void c_lie_at "ringcomm_border::lie_at"(CCall&, shared_ptr[CDevicePlace])


cdef extern from "border/plain.hpp":
    cdef cppclass CCallSpan "ringcomm_border::Span":
        int64_t offset, read, written
        bint allows(const char*, const char*)


cdef class Request:
    cdef CNamed it
    cdef public object finish
    cdef public bint nameless
    cdef object feedback
    cdef DeviceOrder order
    cdef CCallSpan span

    def __init__(self, int collective, int dtype, finish=None, *, int op=1, root=0, str algorithm="", uintptr_t input=0,
                 uintptr_t output=0, size_t count=0, counts=None, receive_counts=None, size_t row=1, size_t rows=0, splits=None,
                 double pre=1, double post=1, uint64_t wire=0, str name="", shape=None, DeviceOrder order=None, bint even=False, Feedback feedback=None, apart=(),
                 span=None):
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
        for address in apart:
            call.apart.push_back(<void*>address)
        call.even = even
        call.wire = wire_of(wire)
        if feedback is not None:
            self.feedback = feedback
            call.feedback = feedback.it.get()
        if shape is not None:
            call.shape, call.shape_text = shape.hash, shape.text.encode()
        if order is not None:
            self.lie_at(order)
        self.it.row, self.it.rows = row, rows
        if splits is not None:
            self.it.splits = splits
        if span is not None:
            self.span.offset, self.span.read, self.span.written = span
        self.finish = finish

    @property
    def host_output(self): return self.it.call.output == NULL

    @property
    def written(self): return <uintptr_t>self.it.call.output, self.span.written

    cpdef lie_at(self, DeviceOrder order):
        self.order = order
        c_lie_at(self.it.call, order.it)

    @property
    def collective(self): return <int>self.it.call.collective

    @property
    def name(self): return self.it.call.name.decode()

    @name.setter
    def name(self, str name not None): self.it.call.name = name.encode()

    @property
    def algorithm(self): return self.it.call.algorithm.decode()

    @algorithm.setter
    def algorithm(self, str algorithm not None): self.it.call.algorithm = algorithm.encode()
