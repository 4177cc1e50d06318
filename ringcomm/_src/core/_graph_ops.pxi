# Graph operations: collectives in graphs of frameworks, and the functions with which the libraries
# of the bindings run them.
cdef extern from "graph_ops/graph_op.hpp" namespace "ringcomm" nogil:
    cdef cppclass CSetLink "ringcomm::SetLink":
        CSetLink()
        void connect(shared_ptr[CEngine], shared_ptr[CWorker], int set, int rank, int size)
        void disconnect()
        uint64_t due(const string&, uint64_t)
        void restart()
    cdef cppclass CGraphOpSpec "ringcomm::GraphOpSpec":
        CCall call
        vector[string] names
        vector[uint64_t] wires, first_wires
        uint64_t first_runs, every
        cbool keeps, splits, even
    cdef cppclass CGraphOp "ringcomm::GraphOp":
        CGraphOp(shared_ptr[CSetLink], CGraphOpSpec)
        vector[float] residual(size_t) except +translate
        void set_residual(size_t, vector[float]) except +translate
    cdef cppclass CGraphOpTable "ringcomm::GraphOpTable":
        int64_t add(shared_ptr[CGraphOp])
        void remove(int64_t) except +translate

cdef extern from "border/graph_ops.hpp" namespace "ringcomm_border":
    CGraphOpTable& c_graph_ops "ringcomm_border::graph_ops"()
    uintptr_t c_graph_op_functions "ringcomm_border::graph_op_functions"()
    cdef cppclass Given "ringcomm_border::Given":
        uintptr_t data
        int dtype
        vector[int64_t] dims
    cdef cppclass Result "ringcomm_border::Result":
        size_t bytes
        int dtype
        vector[int64_t] dims
        uintptr_t address()
    vector[Result] c_run_graph_op "ringcomm_border::run_graph_op"(CGraphOp&, const vector[Given]&) except +translate nogil
    void set_look "ringcomm_border::set_look"(CGraphOpSpec&, object)
    void c_raise_failure "ringcomm_border::raise_failure"(CGraphOp&) except +translate


cdef class SetLink:
    """The link of graphs, which outlive ``shutdown``, to a process set (graph_ops/set_link.hpp)."""
    cdef shared_ptr[CSetLink] it

    def __init__(self):
        self.it = make_shared[CSetLink]()

    def connect(self, Engine engine not None, int set_id, int rank, int size) -> None:
        self.it.get().connect(engine.it, engine.worker, set_id, rank, size)

    def disconnect(self) -> None:
        with nogil:  # the engine may end here
            self.it.get().disconnect()

    def due(self, str name, uint64_t every) -> int:
        """Counts a run. Returns the run's number if it compares replicas, else 0."""
        return self.it.get().due(name.encode(), every)

    def restart(self) -> None: self.it.get().restart()  # resets the counts of runs


cdef class GraphOpResult:
    """A result in memory of the core, 64-byte aligned, which is freed with this object."""
    cdef Result it

    @property
    def address(self) -> int: return self.it.address()

    @property
    def nbytes(self) -> int: return self.it.bytes

    @property
    def dtype(self) -> int: return self.it.dtype

    @property
    def shape(self) -> tuple[int, ...]: return tuple(self.it.dims)


cdef class GraphOp:
    """A collective in a graph (csrc/graph_ops/graph_op.hpp); ``make_graph_op`` creates it.

    Its ``id``, for the table of :func:`graph_op_functions`, is valid until ``remove()``.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> ringcomm.init()
    >>> how, world = bindings.Reduce(ringcomm.Sum), ringcomm.global_process_set
    >>> what = bindings.Description(world, bindings.ALLREDUCE, ["GraphOp.x"], ["float32"], how)
    >>> graph_op = bindings.make_graph_op(what)
    >>> bindings.run_graph_op(graph_op, [np.ones(2, np.float32)])[0].tolist()
    [2.0, 2.0]
    >>> graph_op.remove()
    """
    cdef shared_ptr[CGraphOp] it
    cdef readonly int64_t id

    def __init__(
            self, SetLink link not None, int collective, names: Sequence[str], *, int op=1, int root=0, double pre=1,
            double post=1, wires: Sequence[int] = (), str algorithm="", bint splits=False, bint even=False,
            first_wires: Sequence[int] = (), uint64_t first_runs=0, bint keeps=False,
            look: Callable[[int, list[tuple[int, int, tuple[int, ...]]]], None] | None = None, uint64_t every=0):
        cdef CGraphOpSpec spec
        spec.call.collective, spec.call.op, spec.call.root = <Collective>collective, <Op>op, root
        spec.call.pre.factor, spec.call.post.factor, spec.call.algorithm = pre, post, algorithm.encode()
        spec.names = [(<str?>name).encode() for name in names]
        spec.wires, spec.first_wires, spec.first_runs = wires, first_wires, first_runs
        spec.splits, spec.even, spec.keeps, spec.every = splits, even, keeps, every
        if look is not None:
            set_look(spec, look)
        self.it = make_shared[CGraphOp](link.it, spec)
        self.id = c_graph_ops().add(self.it)

    def run(self, inputs: Sequence[tuple[int, int, Sequence[int]]]) -> list[GraphOpResult]:
        """Runs the operation and returns its results. `inputs`: (address, dtype, shape) of each."""
        cdef vector[Given] given
        cdef vector[Result] results
        cdef Given operand
        cdef GraphOpResult made
        for address, dtype, shape in inputs:
            operand.data, operand.dtype, operand.dims = address, dtype, shape
            given.push_back(operand)
        with nogil:
            results = c_run_graph_op(self.it.get()[0], given)
        out = []
        for i in range(results.size()):
            made = GraphOpResult.__new__(GraphOpResult)
            made.it = results[i]
            out.append(made)
        return out

    def residual(self, size_t tensor) -> bytes:
        """Returns the residual of a tensor, as float32 elements. Call it between runs."""
        cdef vector[float] values = self.it.get().residual(tensor)
        return (<const char*>values.data())[:4 * values.size()]

    def set_residual(self, size_t tensor, uintptr_t values, size_t count) -> None:
        cdef vector[float] all_values
        all_values.assign(<const float*>values, <const float*>values + count)
        self.it.get().set_residual(tensor, all_values)

    def raise_failure(self) -> None:
        """Raises the error of the last failed run, once."""
        c_raise_failure(self.it.get()[0])

    def remove(self) -> None: c_graph_ops().remove(self.id)


def graph_op_functions() -> int:
    """Returns the address of the bindings' function table (csrc/graph_ops/graph_op_functions.h).

    Examples
    --------
    >>> from ringcomm import bindings
    >>> bindings.graph_op_functions() > 0
    True
    """
    return c_graph_op_functions()
