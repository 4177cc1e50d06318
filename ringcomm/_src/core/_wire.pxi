# Wire formats, their encoders and decoders, and the residuals of error feedback.
cdef extern from "codecs/wire_format.hpp" namespace "ringcomm" nogil:
    cdef cppclass CWire "ringcomm::Wire":
        pass
    CWire wire_of "ringcomm::Wire::of"(uint64_t code)
    cbool c_rounds "ringcomm::rounds"(CWire)
    string c_text_of "ringcomm::text_of"(CWire)
    cdef cppclass CSpan "std::span<float>":
        float* data()
        size_t size()
    cdef cppclass CFeedback "ringcomm::Feedback":
        CFeedback(vector[size_t]) except +translate
        void undo(uint64_t)
        void undo(uint64_t, size_t, size_t)
        void undo_all()
        void begin(uint64_t, uint64_t)
        void scale(double)
        CSpan residual(uint64_t) except +translate
        size_t count(uint64_t) except +translate

cdef extern from "border/wire.hpp" namespace "ringcomm_border" nogil:
    vector[string] c_wire_names "ringcomm_border::wire_names"()
    uint64_t c_wire_code "ringcomm_border::wire_code"(const string& name, int mode, int group, float amount) except +translate
    double c_wire_ratio "ringcomm_border::wire_ratio"(uint64_t, int dtype)
    cdef cppclass CCodec "ringcomm::Codec":
        size_t capacity(size_t)
    shared_ptr[CCodec] c_codec "ringcomm_border::codec"(uint64_t, int dtype, shared_ptr[CFeedback]) except +translate
    size_t c_encode "ringcomm_border::encode"(CCodec&, uintptr_t block, size_t count, uintptr_t wire) except +translate
    void c_decode "ringcomm_border::decode"(CCodec&, uintptr_t wire, size_t nbytes, uintptr_t block, size_t count,
                                            cbool add) except +translate


def wire_formats() -> tuple[str, ...]:
    return tuple(name.decode() for name in c_wire_names())


def wire_code(str name, int mode=-1, int group=-1, float amount=-1) -> int:
    """Returns a wire format's code. Negative values: its defaults. ValueError: unknown format."""
    return c_wire_code(name.encode(), mode, group, amount)


def wire_ratio(uint64_t code, int dtype) -> float:
    """Returns the bytes sent for each byte of this dtype; 1: elements are not encoded."""
    return c_wire_ratio(code, dtype)


def wire_rounds(uint64_t code) -> bool:
    """Returns True if the format only rounds, and so has no residuals."""
    return bool(c_rounds(wire_of(code)))


def wire_text(uint64_t code) -> str:  # includes its parameters
    return c_text_of(wire_of(code)).decode()


cdef class Feedback:
    """The residuals of error feedback (csrc/codecs/feedback.hpp)."""
    cdef shared_ptr[CFeedback] it

    def __init__(self, counts: Sequence[int]):
        cdef vector[size_t] all_counts = counts
        self.it = make_shared[CFeedback](all_counts)

    def undo(self, uint64_t tensor, size_t first=0, count: int | None = None) -> None:
        if count is None:
            self.it.get().undo(tensor)
        else:
            self.it.get().undo(tensor, first, <size_t>count)

    def undo_all(self) -> None:
        self.it.get().undo_all()

    def scale(self, double by) -> None:
        self.it.get().scale(by)

    def residual(self, uint64_t tensor=0) -> tuple[int, int]:  # address, elements
        cdef CSpan span = self.it.get().residual(tensor)
        return <uintptr_t>span.data(), span.size()

    def count(self, uint64_t tensor=0) -> int:
        return self.it.get().count(tensor)

    def begin(self, uint64_t tensor=0) -> None:
        self.it.get().begin(tensor, 0)


cdef class Codec:
    """The encoder and decoder of a wire format, on arrays at addresses; benchmarks use it."""
    cdef shared_ptr[CCodec] it

    def __init__(self, uint64_t code, int dtype, Feedback feedback=None):
        cdef shared_ptr[CFeedback] c_feedback
        if feedback is not None:
            c_feedback = feedback.it
        self.it = c_codec(code, dtype, c_feedback)

    def capacity(self, size_t count) -> int:
        return self.it.get().capacity(count)

    def encode(self, uintptr_t block, size_t count, uintptr_t wire) -> int:
        """Encodes a block; writes the decoded values to the block. Returns the encoded bytes."""
        cdef size_t nbytes
        with nogil:
            nbytes = c_encode(self.it.get()[0], block, count, wire)
        return nbytes

    def decode(self, uintptr_t wire, size_t nbytes, uintptr_t block, size_t count, cbool add) -> None:
        with nogil:
            c_decode(self.it.get()[0], wire, nbytes, block, count, add)
