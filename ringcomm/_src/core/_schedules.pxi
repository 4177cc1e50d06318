# Schedules, algorithms and prices for Python: conversion between tuples and the core's types.
cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view "std::string_view":
        pass
    string c_text "std::string"(string_view)

cdef extern from "base/types.hpp" namespace "ringcomm" nogil:
    cdef enum class DType(uint8_t):
        float16
    cdef enum class Op(uint8_t):
        average
    cdef enum class Collective(uint8_t):
        allreduce
    cdef cppclass CDTypeInfo "ringcomm::DTypeInfo":
        string_view name
        size_t size
    # These are std::arrays; Cython needs only methods that vector has too.
    vector[CDTypeInfo] kDTypes
    vector[string_view] kOpNames, kCollectiveNames

cdef extern from "schedule/schedule.hpp" namespace "ringcomm" nogil:
    cdef enum class StepKind(uint8_t):
        send
    cdef enum class Symmetry(uint8_t):
        none
    cdef cppclass CStep "ringcomm::Step":
        StepKind kind
        cbool incoming_first
        int peer, block, source
    cdef cppclass CSchedule "ringcomm::Schedule":
        Collective collective
        string algorithm
        int rank, size, root, blocks
        vector[int] temps
        vector[vector[CStep]] rounds
        Symmetry symmetry

cdef extern from "schedule/network.hpp" namespace "ringcomm" nogil:
    cdef cppclass LinkModel:
        double alpha, beta, gap, hidden
    cdef cppclass CNetwork "ringcomm::Network":
        LinkModel between, within
        double gamma, copy

cdef extern from "schedule/price.hpp" namespace "ringcomm" nogil:
    cdef cppclass CCut "ringcomm::Cut":
        size_t segment, window
    cdef cppclass CPrice "ringcomm::Price":
        double seconds
        size_t messages
        double bytes, reduced
        size_t rounds
        int kind

cdef extern from "schedule/topology.hpp" namespace "ringcomm" nogil:
    cdef cppclass CTopology "ringcomm::Topology":
        int hosts()
        double hop
        vector[string] kinds()
    cdef cppclass CGraphLink "ringcomm::GraphLink":
        int source "from", target "to", kind
        double cost
    shared_ptr[CTopology] make_fat_tree(int hosts, int rack, double oversubscription) except +translate
    shared_ptr[CTopology] make_torus(vector[int] shape) except +translate
    shared_ptr[CTopology] make_rails(int hosts, int rails, double spine) except +translate
    shared_ptr[CTopology] make_graph(int hosts, int nodes, vector[CGraphLink] links, vector[string] kinds) except +translate

cdef extern from "collectives/choose.hpp" namespace "ringcomm" nogil:
    void c_check_algorithm "ringcomm::check_algorithm"(Collective collective, const string& name, int size) except +translate
    cdef cppclass COption "ringcomm::Option":
        string name
        CCut cut
        CPrice price
        cbool chosen
    cdef cppclass CMenu "ringcomm::Menu":
        CMenu(Collective collective, int size, vector[int] hosts, CNetwork network, shared_ptr[const CTopology] topology) except +translate

cdef extern from "border/schedules.hpp" namespace "ringcomm_border":
    CStep make_step(int kind, cbool first, int peer, int block, int source, cbool order_is_open)
    CPrice make_price "ringcomm_border::price"(const vector[CSchedule]& schedules, size_t nbytes, const CNetwork& network, size_t segment,
                                               size_t window, const shared_ptr[const CTopology]& topology) except +translate nogil
    vector[COption] menu_options(CMenu& menu, const string& name, size_t nbytes, cbool equal_blocks, cbool memory, size_t segment,
                                 size_t window, uint64_t wire) except +translate nogil

cdef extern from "schedule/prove.hpp" namespace "ringcomm" nogil:
    cdef cppclass CProof "ringcomm::Proof":
        cbool ok
        string why
    CProof c_prove "ringcomm::prove"(vector[CSchedule]& schedules) except +translate
    vector[vector[vector[double]]] c_follow "ringcomm::follow"(const vector[CSchedule]& schedules) except +translate

cdef extern from "schedule/registry.hpp" namespace "ringcomm" nogil:
    cdef cppclass CAlgorithm "ringcomm::Algorithm":
        Collective collective
        string_view name, summary, alias
        cbool automatic, equal_blocks
    vector[CAlgorithm] c_algorithms "ringcomm::algorithms"() except +translate
    shared_ptr[const CSchedule] c_schedule_for "ringcomm::schedule_for"(Collective collective, const string& name, int rank,
                                                                        int size, int root) except +translate

DTYPES: tuple[str, ...] = tuple([c_text(kDTypes[i].name).decode() for i in range(kDTypes.size())])
ITEM_SIZES: tuple[int, ...] = tuple([kDTypes[i].size for i in range(kDTypes.size())])
OPS: tuple[str, ...] = tuple([c_text(kOpNames[i]).decode() for i in range(kOpNames.size())])
COLLECTIVES: tuple[str, ...] = tuple([c_text(kCollectiveNames[i]).decode() for i in range(kCollectiveNames.size())])
SYMMETRIES = ("none", "rotation", "exclusive_or", "reflection")
STEP_KINDS = ("send", "receive", "reduce", "combine", "copy")


class Step(NamedTuple):
    kind: str  # "send", "receive", "reduce", "combine", "copy"
    peer: int  # -1 for local steps
    block: int
    source: int  # combine, copy; else -1
    incoming_first: bool | None  # reduce, combine: operand order; None: prove() decides


class Price(NamedTuple):
    seconds: float
    messages: int
    bytes: float
    reduced: float
    rounds: int  # rounds of one instance
    kind: int  # links that take most of the time, as an index of Topology.kinds; -1: none do


class AlgorithmInfo(NamedTuple):
    collective: str
    name: str
    equal_blocks: bool
    summary: str
    automatic: bool
    alias: str  # "": none


class Network(NamedTuple):
    """The cost model: seconds per message, and per byte sent, reduced, copied (network.hpp)."""

    alpha: float
    beta: float
    gap: float
    hidden: float
    host_alpha: float
    host_beta: float
    gamma: float
    copy: float


class Option(NamedTuple):
    name: str  # an algorithm; "shared"; or "two_level:" and the algorithm between hosts
    segment: int
    window: int
    price: Price
    chosen: bool  # the core would choose it among the listed options


cdef CNetwork network_of(it) except *:
    cdef CNetwork network
    network.between.alpha, network.between.beta, network.between.gap, network.between.hidden = it.alpha, it.beta, it.gap, it.hidden
    network.within.alpha, network.within.beta, network.within.gap, network.within.hidden = it.host_alpha, it.host_beta, it.gap, 0
    network.gamma, network.copy = it.gamma, it.copy
    return network


cdef price_of(const CPrice& it):
    return Price(it.seconds, it.messages, it.bytes, it.reduced, it.rounds, it.kind)


cdef int position(tuple names, name, what) except -1:
    try:
        return names.index(name)
    except ValueError:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(names)}") from None


cdef class Schedule:
    """The schedule of one rank (csrc/schedule/schedule.hpp)."""
    cdef CSchedule it

    def __init__(
            self, collective: str, algorithm: str, int rank, int size, int root, int blocks, temps: Sequence[int],
            rounds: Sequence[Sequence[Step]], symmetry: str = "none"):
        cdef vector[CStep] steps
        self.it.collective = <Collective>position(COLLECTIVES, collective, "collective")
        self.it.algorithm = algorithm.encode()
        self.it.rank, self.it.size, self.it.root, self.it.blocks = rank, size, root, blocks
        self.it.temps = temps
        self.it.symmetry = <Symmetry>position(SYMMETRIES, symmetry, "symmetry")
        for row in rounds:
            steps.clear()
            for kind, peer, block, source, first in row:
                steps.push_back(make_step(position(STEP_KINDS, kind, "step"), bool(first), peer, block, source, first is None))
            self.it.rounds.push_back(steps)

    @staticmethod
    cdef Schedule wrap(const CSchedule& it):
        cdef Schedule made = Schedule.__new__(Schedule)
        made.it = it
        return made

    @property
    def collective(self) -> str: return COLLECTIVES[<int>self.it.collective]
    @property
    def algorithm(self) -> str: return self.it.algorithm.decode()
    @property
    def rank(self) -> int: return self.it.rank
    @property
    def size(self) -> int: return self.it.size
    @property
    def root(self) -> int: return self.it.root
    @property
    def blocks(self) -> int: return self.it.blocks
    @property
    def temps(self) -> list[int]: return list(self.it.temps)
    @property
    def symmetry(self) -> str: return SYMMETRIES[<int>self.it.symmetry]  # one of SYMMETRIES

    @property
    def rounds(self) -> list[list[Step]]:
        return [[step_of(step) for step in row] for row in self.it.rounds]


cdef step_of(const CStep& it):
    return Step(STEP_KINDS[<int>it.kind], it.peer, it.block, it.source, bool(it.incoming_first))


def algorithms() -> list[AlgorithmInfo]:
    return [AlgorithmInfo(COLLECTIVES[<int>it.collective], c_text(it.name).decode(), bool(it.equal_blocks), c_text(it.summary).decode(),
                          bool(it.automatic), c_text(it.alias).decode())
            for it in c_algorithms()]


def check_algorithm(collective: str, str name, int size=0) -> None:
    """Raises ValueError unless `name` is "shared" or built in, for `size` ranks (0: any)."""
    c_check_algorithm(<Collective>position(COLLECTIVES, collective, "collective"), name.encode(), size)


def schedule(collective: str, algorithm: str, int rank, int size, int root=0) -> Schedule:
    if not (0 <= rank < size and 0 <= root < size):
        raise ValueError(f"rank {rank} and root {root} must be in 0..{size - 1}")
    cdef shared_ptr[const CSchedule] made = c_schedule_for(
        <Collective>position(COLLECTIVES, collective, "collective"), algorithm.encode(), rank, size, root)
    return Schedule.wrap(made.get()[0])


cdef vector[CSchedule] schedules_of(schedules) except *:
    cdef vector[CSchedule] all_ranks
    for rank_schedule in schedules:
        all_ranks.push_back((<Schedule?>rank_schedule).it)
    return all_ranks


def prove(schedules: Sequence[Schedule]) -> str | None:
    """Returns None if the schedules are proved, else the reason why not.

    Sets the operand orders that are None: the operand with the lowest rank's data is the first.
    """
    cdef vector[CSchedule] all_ranks = schedules_of(schedules)
    cdef CProof proof
    cdef size_t rank
    with nogil:
        proof = c_prove(all_ranks)
    for rank in range(all_ranks.size()):
        (<Schedule>schedules[rank]).it = all_ranks[rank]
    return None if proof.ok else proof.why.decode()


def follow(schedules: Sequence[Schedule]) -> list[list[list[float]]]:
    """Returns at [r][i][b] how complete (0 to 1) block b of rank r is when round i begins.

    The last entry of each rank is for the end. Raises ValueError if ranks deadlock.
    """
    cdef vector[CSchedule] all_ranks = schedules_of(schedules)
    cdef vector[vector[vector[double]]] history
    with nogil:
        history = c_follow(all_ranks)
    return history


def digest(schedules: Sequence[Schedule]) -> bytes:
    """Returns a hash of 16 bytes, equal only for equal schedules of all ranks."""
    cdef vector[int] numbers
    cdef CSchedule* it
    cdef CStep step
    cdef size_t i, j
    hashed = hashlib.blake2b(digest_size=16)
    for rank_schedule in schedules:
        it = &(<Schedule?>rank_schedule).it
        numbers = it.temps
        numbers.push_back(<int>it.collective)
        numbers.push_back(it.blocks)
        for i in range(it.rounds.size()):
            numbers.push_back(<int>it.rounds[i].size())
            for j in range(it.rounds[i].size()):
                step = it.rounds[i][j]
                numbers.push_back(<int>step.kind)
                numbers.push_back(step.incoming_first)
                numbers.push_back(step.peer)
                numbers.push_back(step.block)
                numbers.push_back(step.source)
        hashed.update((<char*>numbers.data())[:numbers.size() * sizeof(int)])
    return hashed.digest()


def price(
        schedules: Sequence[Schedule], size_t nbytes, network: Network, size_t segment=0, size_t window=1,
        topology: Topology | None = None) -> Price:
    """Prices the schedules of ranks on separate hosts. segment: bytes; 0: all data in one."""
    cdef vector[CSchedule] all_ranks = schedules_of(schedules)
    cdef CNetwork links = network_of(network)
    cdef shared_ptr[const CTopology] shared = links_of(topology, network)
    cdef CPrice it
    with nogil:
        it = make_price(all_ranks, nbytes, links, segment, window, shared)
    return price_of(it)


cdef class Topology:
    """The links between hosts, for prices with contention (csrc/schedule/topology.hpp)."""
    cdef shared_ptr[CTopology] it

    @staticmethod
    cdef Topology wrap(shared_ptr[CTopology] it, double hop):
        cdef Topology made = Topology.__new__(Topology)
        made.it = it
        made.it.get().hop = hop
        return made

    @staticmethod
    def fat_tree(int hosts, int rack, double oversubscription, double hop=0) -> Topology:
        return Topology.wrap(make_fat_tree(hosts, rack, oversubscription), hop)

    @staticmethod
    def torus(shape: Sequence[int], double hop=0) -> Topology:
        return Topology.wrap(make_torus(shape), hop)

    @staticmethod
    def rails(int hosts, int rails, double spine=0, double hop=0) -> Topology:
        return Topology.wrap(make_rails(hosts, rails, spine), hop)

    @staticmethod
    def graph(int hosts, int nodes, links: Sequence[tuple[int, int, float, int]], kinds: Sequence[str], double hop=0) -> Topology:
        """links: source, target, cost and kind of each."""
        cdef vector[CGraphLink] every
        cdef CGraphLink link
        for link.source, link.target, link.cost, link.kind in links:
            every.push_back(link)
        return Topology.wrap(make_graph(hosts, nodes, every, [kind.encode() for kind in kinds]), hop)

    @property
    def hosts(self) -> int: return self.it.get().hosts()
    @property
    def kinds(self) -> list[str]:
        """The names of the kinds of links; the last one is the links inside hosts."""
        return [kind.decode() for kind in self.it.get().kinds()] + ["inside hosts"]


cdef shared_ptr[const CTopology] links_of(topology: Topology | None, network: Network) except *:
    cdef shared_ptr[const CTopology] links
    if topology is not None:
        if network.beta <= 0:
            raise ValueError("a topology needs a rate between hosts: beta must be above 0")
        links = <shared_ptr[const CTopology]>(<Topology>topology).it
    return links


cdef class Menu:
    """The priced algorithms and routes of a collective (csrc/collectives/choose.hpp)."""
    cdef unique_ptr[CMenu] it

    def __init__(self, collective: str, int size, hosts: Sequence[int] | None, network: Network, topology: Topology | None = None):
        """hosts: the host of each rank; None: each rank has its own."""
        cdef shared_ptr[const CTopology] links = links_of(topology, network)
        cdef vector[int] host_of
        if hosts is not None:
            if len(hosts) != size:
                raise ValueError(f"hosts has {len(hosts)} entries for {size} ranks")
            host_of = hosts
        self.it.reset(new CMenu(<Collective>position(COLLECTIVES, collective, "collective"), size, host_of, network_of(network), links))

    def options(
            self, name: str, size_t nbytes, cbool equal_blocks=True, cbool memory=False, size_t segment=0,
            size_t window=0, uint64_t wire=0) -> list[Option]:
        """Returns the options for `name` ("": all), each with its cheapest segment and window.

        segment, window: fixed values; 0: cheapest. memory: include routes through shared memory.
        wire: wire format of float32 (wire_code).
        """
        cdef string wanted = name.encode()
        cdef vector[COption] found
        cdef CMenu* menu = self.it.get()
        with nogil:
            found = menu_options(menu[0], wanted, nbytes, equal_blocks, memory, segment, window, wire)
        return [Option(it.name.decode(), it.cut.segment, it.cut.window, price_of(it.price), bool(it.chosen)) for it in found]
