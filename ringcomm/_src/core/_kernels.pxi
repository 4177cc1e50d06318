# Kernels on arrays at addresses, for tests and for packing in bindings; and the trace of the core's
# events.
cdef extern from "kernels/kernels.hpp" namespace "ringcomm::kernels" nogil:
    cdef cppclass Scale:
        double factor
        int64_t divisor
    void k_reduce "ringcomm::kernels::reduce"(DType, Op, void*, const void*, const void*, size_t) except +translate
    void k_scale "ringcomm::kernels::scale"(DType, void*, const void*, size_t, Scale) except +translate
    void k_cast "ringcomm::kernels::cast"(DType, void*, DType, const void*, size_t) except +translate
    void k_copy "ringcomm::kernels::copy"(void*, const void*, size_t, cbool) except +translate
    cbool k_reduces "ringcomm::kernels::reduces"(DType, Op)

cdef extern from "kernels/digest.hpp" namespace "ringcomm::kernels" nogil:
    uint64_t k_digest "ringcomm::kernels::digest"(const void*, size_t)

cdef extern from "border/kernels.hpp":
    void k_reduce_many "ringcomm_border::reduce_many"(DType, Op, vector[uintptr_t]&, vector[uintptr_t]&, size_t, Scale, Scale,
                                                      cbool) except +translate nogil
    Scale make_scale "ringcomm_border::scale"(double factor, int64_t divisor) noexcept nogil
    string k_instruction_set "ringcomm_border::instruction_set"() except +translate

cdef extern from "base/trace.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTraceEvent "ringcomm::TraceEvent":
        int64_t begin_ns, end_ns
        uint64_t bytes
        int rank, thread, lane
        char* category
        char* name
        char* detail
    cdef cppclass CTrace "ringcomm::Trace":
        void enable(cbool)
        vector[CTraceEvent] drain() except +translate
        uint64_t dropped()
    CTrace& c_trace "ringcomm::trace"()

cdef extern from "base/trace_text.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTraceText "ringcomm::TraceText":
        CTraceText(int rank, cbool mark_cycles) except +translate
        int row(const string&) except +translate
        string text(const vector[CTraceEvent]&) except +translate


def reduces(int dtype, int op) -> bool:  # True if the dtype supports the elementwise op
    return bool(k_reduces(<DType>dtype, <Op>op))


def kernel_reduce(int dtype, int op, uintptr_t target, uintptr_t first, uintptr_t second, size_t count) -> None:
    with nogil:
        k_reduce(<DType>dtype, <Op>op, <void*>target, <const void*>first, <const void*>second, count)


def kernel_scale(int dtype, uintptr_t target, uintptr_t source, size_t count, double factor, int64_t divisor) -> None:
    with nogil:
        k_scale(<DType>dtype, <void*>target, <const void*>source, count, make_scale(factor, divisor))


def kernel_reduce_many(
        int dtype, int op, targets: Sequence[int], sources: Sequence[int], size_t count, double pre, double post,
        int64_t divisor, bint stream=False) -> None:
    cdef vector[uintptr_t] c_targets = targets
    cdef vector[uintptr_t] c_sources = sources
    with nogil:
        k_reduce_many(<DType>dtype, <Op>op, c_targets, c_sources, count, make_scale(pre, 1), make_scale(post, divisor), stream)


def kernel_cast(int to, uintptr_t target, int source_dtype, uintptr_t source, size_t count) -> None:
    with nogil:
        k_cast(<DType>to, <void*>target, <DType>source_dtype, <const void*>source, count)


def kernel_copy(uintptr_t target, uintptr_t source, size_t nbytes, bint stream=False) -> None:
    with nogil:
        k_copy(<void*>target, <const void*>source, nbytes, stream)


def digests(vector[uintptr_t] addresses, vector[size_t] nbytes) -> bytes:  # a uint64 per array (kernels/digest.hpp)
    cdef vector[uint64_t] hashes
    cdef size_t i
    if addresses.size() != nbytes.size():
        raise ValueError("addresses and nbytes must have the same length")
    hashes.resize(addresses.size())
    with nogil:
        for i in range(addresses.size()):
            hashes[i] = k_digest(<const void*>addresses[i], nbytes[i])
    return (<const char*>hashes.data())[:8 * hashes.size()]


def instruction_set() -> str:
    return k_instruction_set().decode()


class TraceEvent(NamedTuple):
    begin_ns: int
    end_ns: int
    bytes: int
    rank: int
    thread: int  # 0: caller, 1: worker
    lane: int  # row of the timeline, for phases that overlap in time; -1: none
    category: str  # see the list in csrc/base/trace.hpp
    name: str
    detail: str  # for "run": the algorithm or route that ran: "ring", "shared", "local" ...


def trace_enable(bint on) -> None:
    c_trace().enable(on)


cdef class TraceEvents:
    """A list of events in the core's representation."""
    cdef vector[CTraceEvent] it

    def __len__(self) -> int:
        return self.it.size()

    def as_list(self) -> list[TraceEvent]:
        return [TraceEvent(it.begin_ns, it.end_ns, it.bytes, it.rank, it.thread, it.lane, decoded(it.category), decoded(it.name),
                           decoded(it.detail)) for it in self.it]


cdef str decoded(const char* text):
    return (<bytes>text).decode(errors="replace")


def trace_drain() -> TraceEvents:
    cdef TraceEvents events = TraceEvents.__new__(TraceEvents)
    with nogil:
        events.it = c_trace().drain()
    return events


cdef class TraceText:
    """A formatter of events as Chrome trace JSON (csrc/base/trace_text.hpp). Not thread-safe."""
    cdef unique_ptr[CTraceText] it

    def __init__(self, int rank, bint mark_cycles):
        self.it.reset(new CTraceText(rank, mark_cycles))

    def row(self, str name) -> int:
        """Returns the number of a tensor's row. The next text() describes new rows."""
        return self.it.get().row(name.encode(errors="replace"))

    def text(self, TraceEvents events=None) -> bytes:
        """Returns descriptions of new rows and the events, separated by commas; may be empty."""
        cdef string out
        cdef CTraceText* it = self.it.get()
        cdef vector[CTraceEvent] none
        cdef vector[CTraceEvent]* given = &none if events is None else &events.it
        with nogil:
            out = it.text(given[0])
        return <bytes>out


def trace_dropped() -> int:
    return c_trace().dropped()
