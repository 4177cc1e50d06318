"""Defines every option of ringcomm, and reads the options from the environment.

Each field of `Config` is an option, with its default and its meaning. The environment variable
RINGCOMM_<NAME> sets it, or a variable of Horovod; the first that is set wins. The environment is
read once, when the first communicator is made. All ranks then use rank 0's values of the options
that must agree. Sizes take a suffix: ``512K``, ``64M``, ``1G`` (powers of 1024).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringcomm._src.base.arguments import integer, nearest
from ringcomm._src.base.sizes import parse_size
from ringcomm._src.config import horovod_options, rules, topologies
from ringcomm._src.config.option_values import (
    is_unread,
    parse_cores,
    parse_flag,
    parse_gpu_route,
    parse_level,
    parse_replica_check,
    parse_switch,
    parse_trace,
)
from ringcomm._src.core import _core

logger = logging.getLogger("ringcomm")

# Parameters of the cost model of schedules. These defaults, for a 10 Gbit/s network, are used
# if no value is set or measured.
NETWORK = {
    "alpha": 20e-6,
    "beta": 8e-10,
    "gap": 1e-6,
    "hidden": 0.0,
    "host_alpha": 1e-6,
    "host_beta": 2e-10,
    "gamma": 1e-10,
    "copy": 1e-10,
}


def _option(
    default: Any,
    meaning: str,
    *horovod: str,
    parse: Callable[[str], Any] | None = None,
    own: bool = False,
    least: int = 0,
) -> Any:
    """Defines an option.

    Parameters
    ----------
    default : Any
        Value if the option is not set.
    meaning : str
        Text of the documentation.
    *horovod : str
        Variables of Horovod that set it too.
    parse : Callable[[str], Any] | None
        Makes a value from a text; None: derived from the type of the default.
    own : bool
        True if every rank keeps its own value; otherwise all ranks use rank 0's.
    least : int
        Smallest value of a number.
    """
    parse = parse or (parse_flag if isinstance(default, bool) else type(default))
    metadata = {"parse": parse, "meaning": meaning, "horovod": horovod, "own": own, "least": least}
    return dataclasses.field(default=default, metadata=metadata)


def _variables(option: dataclasses.Field[Any]) -> tuple[str, ...]:
    return f"RINGCOMM_{option.name.upper()}", *option.metadata["horovod"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Options of a communicator.

    Each field is an option that :meth:`from_environment` reads from the environment variable
    ``RINGCOMM_<NAME>``; docs/options.md has the meanings. ``Communicator(comm, config)`` uses the
    values of rank 0, except for options that each rank keeps, for example `timeline`.

    Parameters
    ----------
    algorithm, segment_bytes, ... : str, int, float or bool
        The options; the type is that of the default.

    Raises
    ------
    ValueError
        A value is invalid for its option.

    Examples
    --------
    >>> config = ringcomm.Config(algorithm="ring", stall_warn_seconds=10.0)
    >>> with ringcomm.Communicator(config=config) as ring:
    ...     print(ring.allreduce(np.ones(4)).sum())
    8.0
    """

    algorithm: str = _option(
        "",
        "algorithm of all-reduces that do not name one, if it supports them; empty: chosen by tuning rules and the "
        "network model. Adasum ignores it",
    )
    segment_bytes: int = _option(
        0, "size in bytes of the segments in which buffers are sent; 0: chosen by the model", parse=parse_size
    )
    node_segment_bytes: int = _option(
        256 << 10, "size in bytes of the segments that pass through shared memory", parse=parse_size, least=1
    )
    window: int = _option(0, "number of segments in flight; 0: chosen by the model")
    check: bool = _option(True, "ranks compare dtype, shape, op and root of ordered calls before data moves")
    replica_check: str = _option(
        "warn",
        "ranks compare the parameters of distributed optimizers after the first step, every 1,000 steps and after "
        "state_dict(): warn, error, off, or the number of steps between checks (100, error:100)",
        parse=parse_replica_check,
    )
    shared_memory: str = _option(
        "auto", "ranks of one host share memory: auto, off, or on (an error if they cannot)", parse=parse_switch
    )
    cuda_library: str = _option("libcuda.so.1", "file of CUDA's driver, loaded for the first GPU array", own=True)
    nccl_library: str = _option("libnccl.so.2", "file of NCCL, used if each rank has a separate GPU", own=True)
    gpu_route: str = _option(
        "auto",
        "route of GPU arrays: auto, staging (through host memory), aware (GPU-aware MPI), levels (nccl or ipc inside "
        "hosts; between hosts, each rank sends one slice of the array), ipc (kernels that read all ranks' memory) or "
        "nccl; an error if the ranks cannot use the route",
        parse=parse_gpu_route,
    )
    fusion_bytes: int = _option(
        64 << 20,
        "named operations are fused into buffers of at most this size in bytes; 0: no fusion",
        "HOROVOD_FUSION_THRESHOLD",
        parse=parse_size,
    )
    cache_capacity: int = _option(
        16384,
        "number of names that ranks cache, to agree on named operations faster; 0: none",
        "HOROVOD_CACHE_CAPACITY",
    )
    stall_warn_seconds: float = _option(
        60.0,
        "warn when an operation waits this long, in seconds, for other ranks; 0: never",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
    )
    stall_fail_seconds: float = _option(
        0.0,
        "fail a named operation that waits this long, in seconds, for other ranks; 0: never",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    )
    shared_allocator: bool = _option(
        True,
        "torch allocates large gradients, and tensors of process groups, in memory that the ranks of a host share, if "
        "possible; this saves a copy",
    )
    mpi_threads: bool = _option(
        True,
        "a thread of ringcomm drives MPI in the background, if MPI allows it; off: the program's threads do",
        own=True,
    )
    bind: bool = _option(
        True,
        "bind ranks to equal shares of their host's cores, unless the launcher has bound them or there are fewer cores",
    )
    survive: bool = _option(
        False,
        "the job continues if a rank ends by an exception or exit status; set by ringrun --survive",
        own=True,
    )
    check_launcher: bool = _option(
        True,
        "raise an error if the launcher has started more ranks than MPI reports (srun without the PMI plugin of this "
        "MPI, or mpiexec of another MPI); off: each process is then a job of one rank",
        own=True,
    )
    time_slice: float = _option(
        1e-4,
        "time slice of ringcomm's threads, in seconds (needs Linux 6.12); 0: the system's default",
        own=True,
    )
    thread_affinity: str = _option(
        "",
        "cores of ringcomm's background thread, one for each local rank, for example 0,2,4,6; empty: any",
        "HOROVOD_THREAD_AFFINITY",
        parse=parse_cores,
        own=True,
    )
    tune: str = _option(
        "auto",
        "measure the network: auto (in the first job on several hosts; saved for later jobs), on (in each job), off",
        parse=parse_switch,
    )
    tuning_file: str = _option(
        "", "JSON file with rules that take precedence over the model (docs/tuning.md)", parse=rules.read
    )
    topology: str = _option(
        "",
        "links between hosts that transfers share: fat-tree:oversubscription=4,rack=16, torus:8x8, rails:4 or a JSON "
        "file (docs/simulate.md); the model then includes contention on them. Hosts are numbered in the order of ranks",
        parse=topologies.read,
    )
    alpha: float = _option(0.0, "between hosts: latency of a short message, in seconds; 0: measured")
    beta: float = _option(0.0, "between hosts: seconds per byte; 0: measured")
    gap: float = _option(0.0, "between hosts: seconds for each further message of a round; 0: measured")
    hidden: float = _option(
        0.0,
        "between hosts: seconds of a transfer that overlap with the latency, if the link was idle before; 0: measured",
    )
    host_alpha: float = _option(0.0, "inside a host: latency of a short message, in seconds; 0: measured")
    host_beta: float = _option(0.0, "inside a host: seconds per byte; 0: measured")
    gamma: float = _option(0.0, "seconds per byte reduced; 0: measured")
    copy: float = _option(0.0, "seconds per byte copied in memory; 0: measured")
    timeline: str = _option(
        "",
        "file for a Chrome trace from init() on, by rank 0, or by each rank if the name contains {rank}",
        "HOROVOD_TIMELINE",
        parse=parse_trace,
        own=True,
    )
    timeline_mark_cycles: bool = _option(
        False,
        "mark each round of agreement on named operations in the timeline",
        "HOROVOD_TIMELINE_MARK_CYCLES",
        own=True,
    )
    timeline_last: int = _option(0, "the timeline keeps only its newest N to 2 N events; 0: all", own=True)
    stats: bool = _option(False, "include times in ringcomm.stats(), and print rank 0's statistics when it ends")
    log_level: str = _option(
        "warning", "level of the Python logger 'ringcomm'", "HOROVOD_LOG_LEVEL", parse=parse_level, own=True
    )

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            value, least = getattr(self, option.name), option.metadata["least"]
            if type(option.default) is int:
                integer(f"option {option.name}", value)
            elif type(option.default) is bool and value not in (False, True):
                raise ValueError(f"option {option.name} must be True or False, not {value!r}")
            if type(option.default) in (int, float) and not value >= least:
                raise ValueError(f"option {option.name} must be at least {least}, not {value!r}")
            if isinstance(option.default, str) and not isinstance(value, str):
                raise ValueError(f"option {option.name} must be a text, not {value!r}")
            if option.metadata["parse"] in (rules.read, topologies.read):
                object.__setattr__(self, option.name, option.metadata["parse"](value))
            if option.metadata["parse"] is parse_replica_check:
                parse_replica_check(value)
            if option.metadata["parse"] is parse_switch and value not in ("auto", "on", "off"):
                raise ValueError(f"option {option.name} must be auto, on or off, not {value!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Reads the options from environment variables.

        Parameters
        ----------
        environment : Mapping[str, str] | None
            Variables by name; None: ``os.environ``.
        **overrides : Any
            Options that take precedence over the variables.

        Returns
        -------
        Config
            The options; those that are not set have their defaults.

        Raises
        ------
        ValueError
            A variable has an invalid value; the message names it.
        """
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in dataclasses.fields(cls):
            for variable in _variables(option):
                if environment.get(variable, "") != "":
                    try:
                        values[option.name] = option.metadata["parse"](environment[variable])
                    except ValueError as error:
                        raise ValueError(f"{variable}={environment[variable]!r}: {error}") from None
                    break
        ours = {option.name for option in dataclasses.fields(cls) if _variables(option)[0] in environment}
        switches = {
            name: value for name, value in horovod_options.switch_values(environment).items() if name not in ours
        }
        return cls(**(values | switches | overrides))

    def network(self) -> _core.Network:
        """Returns the parameters of the network model: set or measured values, else defaults."""
        return _core.Network(**{name: getattr(self, name) or guess for name, guess in NETWORK.items()})

    def channel(
        self, hosts: Sequence[int], own: _core.CustomAlgorithms | None = None, account: _core.Account | None = None
    ) -> _core.ChannelConfig:
        """Returns the options in the form that a channel takes.

        Parameters
        ----------
        hosts : Sequence[int]
            The host of each rank.
        own : _core.CustomAlgorithms | None
            Custom algorithms.
        account : _core.Account | None
            Counts the calls.

        Returns
        -------
        _core.ChannelConfig
            The options of the core.

        Raises
        ------
        ValueError
            The tuning file or the topology cannot be used, or the topology has too few hosts.
        """
        network = self.network()
        links = topologies.build(self.topology, max(hosts, default=0) + 1, network.beta)
        return _core.ChannelConfig(self, network, hosts, rules.parse(self.tuning_file), links, own, account)

    def agreed(self, all_configs: list[Config], rank: int) -> Config:
        """Returns the options that this rank uses: rank 0's, except those that each rank keeps.

        Rank 0 logs one warning if other ranks have different values.

        Parameters
        ----------
        all_configs : list[Config]
            The options of all ranks.
        rank : int
            This rank.

        Returns
        -------
        Config
            The options of this rank.
        """
        first = all_configs[0]
        shared = [option.name for option in dataclasses.fields(self) if not option.metadata["own"]]
        if rank == 0:
            notes = []
            for name in shared:
                others = [r for r, config in enumerate(all_configs) if getattr(config, name) != getattr(first, name)]
                if others and not is_unread(getattr(first, name)):  # channel() raises the reason
                    notes.append(
                        f"{name} = {getattr(first, name)!r:.80} (ranks {', '.join(map(str, others))} had other values)"
                    )
            if notes:
                logger.warning("ranks have different options; the values of rank 0 are used: %s", "; ".join(notes))
        return dataclasses.replace(self, **{name: getattr(first, name) for name in shared})


@functools.cache
def from_environment() -> Config:
    """Returns the options of the process, which are read once, and sets the log level."""
    config = Config.from_environment()
    logger.setLevel(config.log_level.upper())
    return config


# Variables that are not options: for launchers, elastic jobs and ringcomm.run.
OTHER_VARIABLES = (
    "RINGCOMM_ELASTIC",
    "RINGCOMM_ELASTIC_DRIVER",
    "RINGCOMM_ELASTIC_GENERATION",
    "RINGCOMM_LOCAL_RANK",
    "RINGCOMM_MPIRUN",
    "RINGCOMM_RANK_PROCESS",
    "RINGCOMM_RUN_ADDRESS",
    "RINGCOMM_RUN_KEY",
)
_TESTS = "RINGCOMM_TEST_"  # prefix of variables of the tests

_unknown_logged = False


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Returns a line for each RINGCOMM_ variable that is not an option, with the nearest option."""
    known = [_variables(option)[0] for option in dataclasses.fields(Config)] + list(OTHER_VARIABLES)
    return [
        f"{name} is not an option of ringcomm{nearest(name, known)}"
        for name in sorted(environment)
        if name.startswith("RINGCOMM_") and not name.startswith(_TESTS) and name not in known
    ]


def log_unknown(environment: Mapping[str, str], rank: int = 0) -> None:
    """Logs unknown variables if `rank` is 0. Only the first call in a process has an effect."""
    global _unknown_logged
    if not _unknown_logged and rank == 0 and (lines := unknown_variables(environment)):
        logger.warning("environment variables without effect (docs/options.md lists all options): %s", "; ".join(lines))
    _unknown_logged = True


def options() -> list[dict[str, Any]]:
    """Returns all options as rows (name, default, variables, meaning), for the documentation."""
    return [
        {
            "name": option.name,
            "default": option.default,
            "variables": _variables(option),
            "meaning": option.metadata["meaning"],
        }
        for option in dataclasses.fields(Config)
    ]
