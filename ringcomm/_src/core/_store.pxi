# The parameter store: weights and clocks in memory that the ranks of a host share, and requests to
# the ranks of other hosts that own weights.
cdef extern from "border/store.hpp" namespace "ringcomm::store" nogil:
    ctypedef struct CRuleOptions "ringcomm::kernels::RuleOptions":
        double lr, momentum, dampening, weight_decay, beta1, beta2, eps, lr_decay, scale, alpha, compensate
        cbool nesterov, decoupled, maximize
    CRuleOptions c_usual_options "ringcomm::kernels::RuleOptions"()
    ctypedef int CUpdateRule "ringcomm::store::Rule"
    size_t c_states_of "ringcomm::kernels::states_of"(CUpdateRule rule, const CRuleOptions&)
    ctypedef int CArrival "ringcomm::store::Arrival"
    cdef cppclass CGathering "ringcomm::store::Gathering":
        int many
        cbool of_step
        size_t sum
    cdef cppclass CClocks "ringcomm::store::Clocks":
        CClocks(void* memory, int workers, CNode* node, vector[int] of_host)
        void set(int worker, int64_t clock)
        int64_t of(int worker)
        int live()
        cbool wait(int worker, int64_t clock, int64_t longest_ns)
        void wake()
        void sleep(unsigned int seen, int64_t longest_ns)
        unsigned int ticks()
        void look_for_dead()
        vector[int] lost()
    size_t c_clocks_bytes "ringcomm::store::Clocks::bytes"(int workers)
    cdef cppclass CLock "ringcomm::store::Lock":
        cbool take(CNode* node, int rank)
        void give_back()
    cdef cppclass CRange "ringcomm::store::Range":
        CRange(uint64_t first, uint64_t count)
    cdef cppclass CRanges "std::span<const ringcomm::store::Range>":
        CRanges(const CRange* first, size_t many)
    cdef cppclass CShard "ringcomm::store::Shard":
        CShard(void* memory, int owner, size_t count, cbool wide, size_t states, size_t sums, shared_ptr[CNode] node,
               int rank)
        uint64_t version()
        uint64_t broken()
        uint64_t group()
        cbool gathers_now()
        void make(const void* weights)
        uint64_t apply(CUpdateRule, const CRuleOptions&, CRanges, const void* gradient, const void* pulled, void* result)
        CArrival gather(const CGathering&, uint64_t clock, CUpdateRule, const CRuleOptions&, const void* gradient, const CClocks&)
        cbool apply_if_complete(const CGathering&, CUpdateRule, const CRuleOptions&, const CClocks&)
        unsigned int claim(const CGathering&, const CClocks&, void* sum)
        void release()
        pair[uint64_t, uint64_t] average_with(CShard& other)
    size_t c_shard_bytes "ringcomm::store::Shard::bytes"(size_t count, cbool wide, size_t states, size_t sums)
    void c_update "ringcomm_border::update"(CUpdateRule rule, const CRuleOptions&, uintptr_t weights, uintptr_t gradient,
                                            uintptr_t result, size_t count)
    cdef cppclass CDue "ringcomm::store::Due":
        int64_t clock
        uint64_t group
    cdef cppclass CHead "ringcomm::store::Head":
        CUpdateRule rule
        cbool gathers
        uint64_t shard, step
        int64_t clock
        CDue due
        CRuleOptions options
    cdef cppclass CPostedRequest "ringcomm::store::PostedRequest"(COperation):
        int peer
        CHead head
        vector[CRange] ranges
        size_t element
        const void* gradient
        const void* pulled
        void* result
        CArrival arrival
        uint64_t version, group
    cdef cppclass CServed "ringcomm::store::Served":
        shared_ptr[CShard] shard
        shared_ptr[CClocks] clocks
        vector[int] ranks
        CGathering gathering
        CUpdateRule rule
        CRuleOptions options
    cdef cppclass CServer "ringcomm::store::Server":
        void serve(uint64_t shard, CServed served)
        void forget(uint64_t shard)
    cdef cppclass CClient "ringcomm::store::Client":
        void post(shared_ptr[CPostedRequest] request)
    cdef cppclass CStoreService "ringcomm::store::Service":
        CServer server
        CClient client
    shared_ptr[CStoreService] c_service_on "ringcomm_border::service_on"(CEngine&) except +translate

RULES: tuple[str, ...] = ("get", "put", "add", "sgd", "adam", "adagrad", "rmsprop", "elastic", "average")
ARRIVALS: tuple[str, ...] = ("applied", "gathered", "dropped", "full")


cdef class RuleOptions:
    """An update rule with its options (csrc/kernels/update.hpp)."""
    cdef CRuleOptions it
    cdef readonly int rule

    def __init__(self, str rule, **options: float):
        self.rule, self.it = RULES.index(rule), c_usual_options()
        for name, value in options.items():
            self.set(name, value)

    def set(self, str name, value: float) -> None:
        cdef dict options = self.it
        if name not in options:
            raise ValueError(f"update rules have no option {name!r}")
        options[name] = value
        self.it = options

    @property
    def states(self) -> int:
        """Number of state arrays that the rule keeps in addition to the weights."""
        return c_states_of(<CUpdateRule>self.rule, self.it)


def update(RuleOptions how not None, uintptr_t weights, uintptr_t gradient, uintptr_t result, size_t count) -> None:
    """Applies a rule without state to float32 arrays at addresses; benchmarks use it."""
    with nogil:
        c_update(<CUpdateRule>how.rule, how.it, weights, gradient, result, count)


cdef class Clocks:
    """The workers' clocks (csrc/param_server/clocks.hpp). A finished worker's clock is None."""
    cdef shared_ptr[CClocks] it
    cdef shared_ptr[CNode] node

    def __init__(self, uintptr_t memory, int workers, node: Node | None, of_host: Sequence[int] = ()):
        cdef vector[int] here = of_host
        self.node = node_of(node)
        self.it = make_shared[CClocks](<void*>memory, workers, self.node.get(), here)

    @staticmethod
    def bytes(int workers) -> int: return c_clocks_bytes(workers)

    def set(
            self, int worker, clock: int | None) -> None: self.it.get().set(worker, INT64_MAX if clock is None else <int64_t>clock)

    def of(self, int worker) -> int | None:
        cdef int64_t clock = self.it.get().of(worker)
        return None if clock >= INT64_MAX - 1 else clock

    def live(self) -> int: return self.it.get().live()

    def wait(self, int worker, int64_t clock, double seconds) -> bool:  # worker -1: all workers
        cdef int64_t longest = <int64_t>(seconds * 1e9)
        cdef cbool reached
        with nogil:
            reached = self.it.get().wait(worker, clock, longest)
        return bool(reached)

    def wake(self) -> None: self.it.get().wake()
    def ticks(self) -> int: return self.it.get().ticks()

    def sleep(self, unsigned int seen, double seconds) -> None:
        cdef int64_t longest = <int64_t>(seconds * 1e9)
        with nogil:
            self.it.get().sleep(seen, longest)
            self.it.get().look_for_dead()

    def lost(self) -> list[int]: return list(self.it.get().lost())


cdef class Shard:
    """A shard of weights to which any rank of the host applies a rule (param_server/shard.hpp).

    If `many` > 0, gradients are gathered in `sums` sums (one, or one for each worker), and this
    object adds gradients to the sum with index `sum`. Arrays are addresses; 0: none.
    """
    cdef shared_ptr[CShard] it
    cdef CGathering gathering

    def __init__(
            self, uintptr_t memory, int owner, size_t count, cbool wide, size_t states, int many, cbool of_step,
            size_t sums, size_t sum, node: Node | None, int rank):
        self.it = make_shared[CShard](<void*>memory, owner, count, wide, states, sums, node_of(node), rank)
        self.gathering.many, self.gathering.of_step, self.gathering.sum = many, of_step, sum

    @staticmethod
    def bytes(
            size_t count, cbool wide, size_t states, size_t sums) -> int: return c_shard_bytes(count, wide, states, sums)

    def make(self, uintptr_t weights) -> None: self.it.get().make(<void*>weights)
    def version(self) -> int: return self.it.get().version()
    def broken(self) -> int: return self.it.get().broken()

    def group(self) -> int:
        cdef uint64_t group
        with nogil:
            group = self.it.get().group()
        return group

    def gathers_now(self) -> bool: return self.it.get().gathers_now()

    def apply(
            self, RuleOptions how not None, size_t first, size_t count, uintptr_t gradient, uintptr_t pulled,
            uintptr_t result) -> int:  # the previous version
        cdef uint64_t[2] all
        all[0], all[1] = first, count
        return self.apply_ranges(how, <uintptr_t>&all[0], 1, gradient, pulled, result)

    def apply_ranges(
            self, RuleOptions how not None, uintptr_t ranges, size_t many, uintptr_t gradient, uintptr_t pulled,
            uintptr_t result) -> int:
        cdef uint64_t before
        with nogil:
            before = self.it.get().apply(<CUpdateRule>how.rule, how.it, CRanges(<CRange*>ranges, many), <void*>gradient,
                                         <void*>pulled, <void*>result)
        return before

    def gather(self, RuleOptions how not None, uint64_t clock, uintptr_t gradient, Clocks clocks not None) -> str:
        """Adds a gradient and returns its outcome, one of ARRIVALS."""
        cdef CArrival arrival
        with nogil:
            arrival = self.it.get().gather(self.gathering, clock, <CUpdateRule>how.rule, how.it, <void*>gradient, clocks.it.get()[0])
        return ARRIVALS[<int>arrival]

    def apply_if_complete(self, RuleOptions how not None, Clocks clocks not None) -> bool:
        cdef cbool applied
        with nogil:
            applied = self.it.get().apply_if_complete(self.gathering, <CUpdateRule>how.rule, how.it, clocks.it.get()[0])
        return bool(applied)

    def claim(self, Clocks clocks not None, uintptr_t sum) -> int:  # number of gathered gradients; 0: not enough yet
        return self.it.get().claim(self.gathering, clocks.it.get()[0], <void*>sum)

    def release(self) -> None: self.it.get().release()

    def average_with(self, Shard other not None) -> tuple[int, int]:  # previous versions of both
        cdef pair[uint64_t, uint64_t] before
        with nogil:
            before = self.it.get().average_with(other.it.get()[0])
        return before.first, before.second


cdef class PostedRequest(Operation):
    """A request to a server.

    Its fields are valid once it is done: the previous version, the number of gathered updates, and
    the outcome of the gradient.
    """
    cdef shared_ptr[CPostedRequest] core
    cdef object arrays

    @property
    def version(self) -> int: return self.core.get().version
    @property
    def group(self) -> int: return self.core.get().group
    @property
    def arrival(self) -> str: return ARRIVALS[<int>self.core.get().arrival]


cdef class StoreService:
    """The store's service between ranks that share no memory (csrc/param_server/service.hpp)."""
    cdef shared_ptr[CStoreService] it
    cdef shared_ptr[CEngine] engine
    cdef shared_ptr[CWorker] worker
    cdef list in_flight  # unfinished requests: the core writes to their arrays

    def __init__(self, Engine engine not None):
        self.engine, self.worker, self.in_flight = engine.it, engine.worker, []
        self.it = c_service_on(engine.it.get()[0])

    def serve(
            self, uint64_t number, Shard shard, Clocks clocks not None, ranks: Sequence[int], RuleOptions how) -> None:
        cdef CServed served
        served.clocks, served.ranks = clocks.it, ranks
        if shard is not None:
            served.shard, served.gathering = shard.it, shard.gathering
            served.rule, served.options = <CUpdateRule>how.rule, how.it
        self.it.get().server.serve(number, served)
        self.engine.get().wake()

    def forget(self, uint64_t number) -> None: self.it.get().server.forget(number)

    def post(
            self, int peer, uint64_t number, RuleOptions how not None, ranges: Sequence[Sequence[int]],
            size_t element, gradient: Any, pulled: Any, result: Any, step: int | None = None,
            clock: int | None = None, due: tuple[int, int] | None = None) -> PostedRequest:
        cdef PostedRequest request = PostedRequest.__new__(PostedRequest)
        cdef shared_ptr[CPostedRequest] it = make_shared[CPostedRequest]()
        request.core, request.it, request.worker = it, <shared_ptr[COperation]>it, self.worker
        request.arrays = gradient, pulled, result
        it.get().peer, it.get().element, it.get().head.shard = peer, element, number
        it.get().head.rule, it.get().head.options = <CUpdateRule>how.rule, how.it
        for first, count in ranges:
            it.get().ranges.push_back(CRange(first, count))
        if gradient is not None: it.get().gradient = <void*><uintptr_t>gradient.ctypes.data
        if pulled is not None: it.get().pulled = <void*><uintptr_t>pulled.ctypes.data
        if result is not None: it.get().result = <void*><uintptr_t>result.ctypes.data
        if step is not None: it.get().head.gathers, it.get().head.step = True, step
        if clock is not None: it.get().head.clock = min(clock, INT64_MAX)
        if due is not None: it.get().head.due.clock, it.get().head.due.group = due
        self.in_flight = [earlier for earlier in self.in_flight if not earlier.done()]
        self.in_flight.append(request)
        self.it.get().client.post(it)
        self.engine.get().wake()
        return request


cdef class HostLock:
    """A lock in 64 zero bytes of shared memory, which outlive it (csrc/param_server/lock.hpp)."""
    cdef CLock* it
    cdef shared_ptr[CNode] node
    cdef int rank

    def __init__(self, uintptr_t memory, node: Node | None, int rank):
        self.it, self.node, self.rank = <CLock*>memory, node_of(node), rank

    def __enter__(self) -> None:
        with nogil:
            self.it.take(self.node.get(), self.rank)

    def __exit__(self, *error: object) -> None:
        self.it.give_back()
