# Weights and clocks in memory that the ranks of a host share.
cdef extern from "store/shard.hpp" namespace "ringcomm::store" nogil:
    cdef cppclass CRuleOptions "ringcomm::kernels::RuleOptions":
        double lr, momentum, dampening, weight_decay, beta1, beta2, eps, lr_decay, scale, alpha, compensate
        cbool nesterov, decoupled, maximize
    cdef cppclass CGathering "ringcomm::store::Gathering":
        int many
        cbool of_step
        size_t sum
    cdef cppclass CClocks "ringcomm::store::Clocks":
        void set(int worker, int64_t clock)
        int64_t of(int worker)
        int64_t least()
        int live()
        cbool wait(int worker, int64_t clock, int64_t longest_ns)
        void wake()
        void sleep(unsigned int seen, int64_t longest_ns)
        unsigned int ticks()
        void look_for_dead()
        vector[int] lost()
    size_t c_clocks_bytes "ringcomm::store::Clocks::bytes"(int workers)

cdef extern from "store/lock.hpp" namespace "ringcomm::store" nogil:
    cdef cppclass CLock "ringcomm::store::Lock":
        cbool take(CNode* node, int rank)
        void give_back()

cdef extern from "border/store.hpp" namespace "ringcomm_border" nogil:
    cdef cppclass CShard "ringcomm_border::AnyShard":
        CShard(uintptr_t memory, int owner, size_t count, cbool wide, size_t states, size_t sums,
               shared_ptr[CNode] node, int rank)
        uint64_t version()
        uint64_t broken()
        uint64_t group()
        void make(uintptr_t weights)
        uint64_t apply(int rule, const CRuleOptions&, size_t first, size_t count, uintptr_t gradient, uintptr_t pulled,
                       uintptr_t result)
        int gather(const CGathering&, uint64_t clock, int rule, const CRuleOptions&, uintptr_t gradient, const CClocks&)
        cbool settle(const CGathering&, int rule, const CRuleOptions&, const CClocks&)
        pair[uint64_t, uint64_t] average_with(CShard& other)
    size_t c_shard_bytes "ringcomm_border::AnyShard::bytes"(size_t count, cbool wide, size_t states, size_t sums)
    unique_ptr[CClocks] c_clocks "ringcomm_border::clocks"(uintptr_t memory, int workers, CNode* node)
    size_t c_states_of "ringcomm_border::states_of"(int rule, const CRuleOptions&)
    void c_update "ringcomm_border::update"(int rule, const CRuleOptions&, uintptr_t weights, uintptr_t gradient,
                                            uintptr_t result, size_t count)

RULES = ("get", "put", "add", "sgd", "adam", "adagrad", "rmsprop", "elastic", "average")
ARRIVALS = ("applied", "gathered", "dropped", "full")


cdef class RuleOptions:
    cdef CRuleOptions it
    cdef readonly int rule

    def __init__(self, str rule, **options):
        self.rule = RULES.index(rule)
        for name, value in options.items():
            self.set(name, value)

    def set(self, str name, value):
        if name == "lr": self.it.lr = value
        elif name == "momentum": self.it.momentum = value
        elif name == "dampening": self.it.dampening = value
        elif name == "weight_decay": self.it.weight_decay = value
        elif name == "beta1": self.it.beta1 = value
        elif name == "beta2": self.it.beta2 = value
        elif name == "eps": self.it.eps = value
        elif name == "lr_decay": self.it.lr_decay = value
        elif name == "scale": self.it.scale = value
        elif name == "alpha": self.it.alpha = value
        elif name == "compensate": self.it.compensate = value
        elif name == "nesterov": self.it.nesterov = value
        elif name == "decoupled": self.it.decoupled = value
        elif name == "maximize": self.it.maximize = value
        else: raise ValueError(f"no rule has an option {name!r}")

    @property
    def states(self): return c_states_of(self.rule, self.it)


def update(RuleOptions how not None, uintptr_t weights, uintptr_t gradient, uintptr_t result, size_t count):
    with nogil:
        c_update(how.rule, how.it, weights, gradient, result, count)


cdef class Clocks:
    cdef unique_ptr[CClocks] it
    cdef shared_ptr[CNode] node

    def __init__(self, uintptr_t memory, int workers, node):
        self.node = node_of(node)
        self.it = c_clocks(memory, workers, self.node.get())

    @staticmethod
    def bytes(int workers): return c_clocks_bytes(workers)

    def set(self, int worker, clock): self.it.get().set(worker, INT64_MAX if clock is None else <int64_t>clock)

    def of(self, int worker):
        cdef int64_t clock = self.it.get().of(worker)
        return None if clock >= INT64_MAX - 1 else clock

    def live(self): return self.it.get().live()

    def wait(self, int worker, int64_t clock, double seconds):
        cdef int64_t longest = <int64_t>(seconds * 1e9)
        cdef cbool there
        with nogil:
            there = self.it.get().wait(worker, clock, longest)
        return bool(there)

    def wake(self): self.it.get().wake()
    def ticks(self): return self.it.get().ticks()

    def sleep(self, unsigned int seen, double seconds):
        cdef int64_t longest = <int64_t>(seconds * 1e9)
        with nogil:
            self.it.get().sleep(seen, longest)
            self.it.get().look_for_dead()

    def lost(self): return list(self.it.get().lost())


cdef class Shard:
    cdef unique_ptr[CShard] it
    cdef CGathering gathering

    def __init__(self, uintptr_t memory, int owner, size_t count, cbool wide, size_t states, int many, cbool of_step,
                 size_t sums, node, int rank):
        self.it.reset(new CShard(memory, owner, count, wide, states, sums, node_of(node), rank))
        self.gathering.many, self.gathering.of_step, self.gathering.sum = many, of_step, rank if sums > 1 else 0

    @staticmethod
    def bytes(size_t count, cbool wide, size_t states, size_t sums): return c_shard_bytes(count, wide, states, sums)

    def make(self, uintptr_t weights): self.it.get().make(weights)
    def version(self): return self.it.get().version()
    def broken(self): return self.it.get().broken()

    def group(self):
        cdef uint64_t group
        with nogil:
            group = self.it.get().group()
        return group

    def apply(self, RuleOptions how not None, size_t first, size_t count, uintptr_t gradient, uintptr_t pulled,
              uintptr_t result):
        cdef uint64_t before
        with nogil:
            before = self.it.get().apply(how.rule, how.it, first, count, gradient, pulled, result)
        return before

    def gather(self, RuleOptions how not None, uint64_t clock, uintptr_t gradient, Clocks clocks not None):
        cdef int arrival
        with nogil:
            arrival = self.it.get().gather(self.gathering, clock, how.rule, how.it, gradient, clocks.it.get()[0])
        return ARRIVALS[arrival]

    def settle(self, RuleOptions how not None, Clocks clocks not None):
        cdef cbool applied
        with nogil:
            applied = self.it.get().settle(self.gathering, how.rule, how.it, clocks.it.get()[0])
        return bool(applied)

    def average_with(self, Shard other not None):
        cdef pair[uint64_t, uint64_t] before
        with nogil:
            before = self.it.get().average_with(other.it.get()[0])
        return before.first, before.second


cdef class HostLock:
    cdef CLock* it
    cdef shared_ptr[CNode] node
    cdef int rank

    def __init__(self, uintptr_t memory, node, int rank):
        self.it, self.node, self.rank = <CLock*>memory, node_of(node), rank

    def __enter__(self):
        with nogil:
            self.it.take(self.node.get(), self.rank)

    def __exit__(self, *error):
        self.it.give_back()
