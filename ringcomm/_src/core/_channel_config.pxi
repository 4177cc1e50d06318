# Configuration of channels and engines: options, network model, rules for algorithms, and custom
# algorithms.
cdef extern from "collectives/custom_algorithms.hpp" namespace "ringcomm" nogil:
    cdef cppclass CCustomAlgorithms "ringcomm::CustomAlgorithms":
        void add(const string&, shared_ptr[const CSchedule]) except +translate

cdef extern from "collectives/channel.hpp" namespace "ringcomm" nogil:
    cdef cppclass CRule "ringcomm::Rule":
        Collective collective
        size_t from_bytes, to_bytes, segment
        int from_ranks, to_ranks
        string algorithm
    cdef cppclass CChannelConfig "ringcomm::ChannelConfig":
        size_t segment_bytes, node_segment_bytes, window
        cbool check
        int64_t spin_ns
        CNetwork network
        vector[int] hosts
        string algorithm
        string device_route
        vector[CRule] rules
        shared_ptr[const CTopology] topology
        shared_ptr[const CCustomAlgorithms] custom_algorithms
        shared_ptr[CAccount] account
        double stall_warn_seconds


class ChannelConfig(NamedTuple):
    """The configuration of a channel, or of an engine and its channels."""

    options: Config
    network: Network
    hosts: Sequence[int]  # host of each rank of the transport; empty: each rank has its own
    rules: Sequence[Rule]
    topology: Topology | None = None  # links between hosts, for prices with contention
    custom_algorithms: CustomAlgorithms | None = None
    account: Account | None = None  # counts the calls, of one thread at a time; None: a new one
    spin_ns: int = 0  # time that a waiting caller spins before it yields its core, in ns


class Rule(NamedTuple):
    """The algorithm ("": any) and segment (0: any) of calls within these inclusive bounds."""

    collective: str
    from_bytes: int
    to_bytes: int
    from_ranks: int
    to_ranks: int
    algorithm: str
    segment: int


cdef class CustomAlgorithms:
    """The schedules of custom algorithms (csrc/collectives/custom_algorithms.hpp)."""
    cdef shared_ptr[CCustomAlgorithms] it

    def __init__(self):
        self.it = make_shared[CCustomAlgorithms]()

    def add(self, str name, Schedule schedule not None) -> None:
        self.it.get().add(name.encode(), <shared_ptr[const CSchedule]>make_shared[CSchedule](schedule.it))


cdef CChannelConfig channel_config(it) except *:
    cdef CChannelConfig config
    cdef CRule rule
    options = it.options
    config.segment_bytes, config.window, config.check = options.segment_bytes, options.window, options.check
    config.node_segment_bytes, config.stall_warn_seconds = options.node_segment_bytes, options.stall_warn_seconds
    config.algorithm, config.device_route = options.algorithm.encode(), options.gpu_route.encode()
    config.network, config.hosts, config.spin_ns = network_of(it.network), it.hosts, it.spin_ns
    if it.custom_algorithms is not None:
        config.custom_algorithms = <shared_ptr[const CCustomAlgorithms]>(<CustomAlgorithms?>it.custom_algorithms).it
    config.topology = links_of(it.topology, it.network)
    if it.account is not None:
        config.account = (<Account?>it.account).it
    for given in it.rules:
        rule.collective = <Collective>position(COLLECTIVES, given.collective, "collective")
        rule.from_bytes, rule.to_bytes, rule.segment = given.from_bytes, given.to_bytes, given.segment
        rule.from_ranks, rule.to_ranks = given.from_ranks, given.to_ranks
        rule.algorithm = given.algorithm.encode()
        config.rules.push_back(rule)
    return config
