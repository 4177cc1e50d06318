"""Every option of ringcomm, in one place.

Each field of `Config` is an option: its default, the environment variables that set it (the first that is set wins),
and what it means. The environment is read once, when the first communicator is made; rank 0's values are then used by
all ranks for everything that ranks must agree on. Sizes take a suffix: ``512K``, ``64M``, ``1G`` (powers of 1024).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringcomm import _core, horovod_options, rules
from ringcomm.option_values import parse_cores, parse_flag, parse_gpu_path, parse_level, parse_switch, parse_trace
from ringcomm.sizes import parse_size

logger = logging.getLogger("ringcomm")

# What prices schedules, and a guess at it (a 10 Gbit/s network) for where nothing has been measured.
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


def _option(default: Any, parse: Callable[[str], Any], meaning: str, *variables: str, own: bool = False) -> Any:
    """`own`: every rank keeps its own value; otherwise rank 0's is used by all."""
    return dataclasses.field(
        default=default, metadata={"parse": parse, "meaning": meaning, "variables": variables, "own": own}
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """The options of a communicator; `Config.from_environment()` reads them, keyword arguments override."""

    algorithm: str = _option(
        "",
        str,
        "of all-reduces that name none, where it can run; empty: chosen by rules and the model. Adasum has its own",
        "RINGCOMM_ALGORITHM",
    )
    segment_bytes: int = _option(
        0, parse_size, "buffers are sent in pieces of this size; 0: chosen by the model", "RINGCOMM_SEGMENT_BYTES"
    )
    node_segment_bytes: int = _option(
        256 << 10,
        parse_size,
        "piece of a buffer that goes through shared memory at once",
        "RINGCOMM_NODE_SEGMENT_BYTES",
    )
    window: int = _option(0, int, "pieces in flight; 0: chosen by the model", "RINGCOMM_WINDOW")
    check: bool = _option(
        True,
        parse_flag,
        "ordered calls compare dtype, shape, op and root between ranks before data moves",
        "RINGCOMM_CHECK",
    )
    shared_memory: str = _option(
        "auto",
        parse_switch,
        "ranks of one host share memory: auto, off, or on (an error if it cannot be had)",
        "RINGCOMM_SHARED_MEMORY",
    )
    cuda_library: str = _option(
        "libcuda.so.1",
        str,
        "CUDA's driver, loaded when the first array of a GPU comes",
        "RINGCOMM_CUDA_LIBRARY",
        own=True,
    )
    nccl_library: str = _option(
        "libnccl.so.2", str, "NCCL, used where every rank has a GPU of its own", "RINGCOMM_NCCL_LIBRARY", own=True
    )
    gpu_path: str = _option(
        "auto",
        parse_gpu_path,
        "how arrays of GPUs travel: auto, staging (through the host's memory), aware (an MPI that takes addresses of "
        "GPUs), levels (slices between hosts), ipc (kernels that read all ranks' memory) or nccl; an error where ranks "
        "cannot go it",
        "RINGCOMM_GPU_PATH",
    )
    fusion_bytes: int = _option(
        64 << 20,
        parse_size,
        "named operations are fused into buffers of at most this size; 0: not at all",
        "RINGCOMM_FUSION_BYTES",
        "HOROVOD_FUSION_THRESHOLD",
    )
    cache_capacity: int = _option(
        4096,
        int,
        "names remembered, so that agreement on them is short; 0: none",
        "RINGCOMM_CACHE_CAPACITY",
        "HOROVOD_CACHE_CAPACITY",
    )
    stall_warn_seconds: float = _option(
        60.0,
        float,
        "warn when an operation waits this long for other ranks; 0: never",
        "RINGCOMM_STALL_WARN_SECONDS",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
    )
    stall_fail_seconds: float = _option(
        0.0,
        float,
        "fail a named operation that waits this long for other ranks; 0: never",
        "RINGCOMM_STALL_FAIL_SECONDS",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    )
    shared_allocator: bool = _option(
        True,
        parse_flag,
        "torch makes big gradients in memory that the ranks of a host share, where that can be had: none is copied",
        "RINGCOMM_SHARED_ALLOCATOR",
    )
    mpi_threads: bool = _option(
        True,
        parse_flag,
        "a thread of ours drives MPI in the background, if MPI allows it; off: the program's own threads do",
        "RINGCOMM_MPI_THREADS",
        own=True,
    )
    bind: bool = _option(
        True,
        parse_flag,
        "ranks of a host that may run on the same cores, and on as many as they are, get a share of them each",
        "RINGCOMM_BIND",
    )
    survive: bool = _option(
        False,
        parse_flag,
        "a rank that ends by an exception or exit status leaves the others running, instead of ending the job; set by "
        "ringrun --survive",
        "RINGCOMM_SURVIVE",
        own=True,
    )
    time_slice: float = _option(
        1e-4,
        float,
        "seconds that our threads run before others that want their core have it; 0: as the system has it",
        "RINGCOMM_TIME_SLICE",
        own=True,
    )
    thread_affinity: str = _option(
        "",
        parse_cores,
        "cores for that thread, such as 0,2,4,6: one for each local rank; empty: any",
        "RINGCOMM_THREAD_AFFINITY",
        "HOROVOD_THREAD_AFFINITY",
        own=True,
    )
    tune: str = _option(
        "auto",
        parse_switch,
        "measure the network: auto (when ranks of several hosts first meet; kept for later jobs), on (each time), off",
        "RINGCOMM_TUNE",
    )
    tuning_file: str = _option(
        "", rules.read, "JSON file with rules that go before the model (docs/tuning.md)", "RINGCOMM_TUNING_FILE"
    )
    alpha: float = _option(
        0.0, float, "network between hosts: seconds until a short message has come; 0: measured", "RINGCOMM_ALPHA"
    )
    beta: float = _option(0.0, float, "between hosts: seconds per byte; 0: measured", "RINGCOMM_BETA")
    gap: float = _option(
        0.0, float, "between hosts: seconds for each further message of a round; 0: measured", "RINGCOMM_GAP"
    )
    hidden: float = _option(
        0.0,
        float,
        "between hosts: seconds of sending that a link makes up for after a pause; 0: measured",
        "RINGCOMM_HIDDEN",
    )
    host_alpha: float = _option(
        0.0, float, "messages inside a host: seconds until a short one has come; 0: measured", "RINGCOMM_HOST_ALPHA"
    )
    host_beta: float = _option(
        0.0, float, "messages inside a host: seconds per byte; 0: measured", "RINGCOMM_HOST_BETA"
    )
    gamma: float = _option(0.0, float, "seconds per byte reduced; 0: measured", "RINGCOMM_GAMMA")
    copy: float = _option(0.0, float, "seconds per byte copied in memory; 0: measured", "RINGCOMM_COPY")
    timeline: str = _option(
        "",
        parse_trace,
        "file for a Chrome trace of everything from init() on; {rank} in it: one per rank, else rank 0's",
        "RINGCOMM_TIMELINE",
        "HOROVOD_TIMELINE",
        own=True,
    )
    timeline_mark_cycles: bool = _option(
        False,
        parse_flag,
        "mark in the timeline each round of agreement on named operations",
        "RINGCOMM_TIMELINE_MARK_CYCLES",
        "HOROVOD_TIMELINE_MARK_CYCLES",
        own=True,
    )
    stats: bool = _option(
        False,
        parse_flag,
        "look at clocks for ringcomm.stats(), and print rank 0's table of what it has moved when it ends",
        "RINGCOMM_STATS",
    )
    log_level: str = _option(
        "warning", parse_level, "of the Python logger 'ringcomm'", "RINGCOMM_LOG_LEVEL", "HOROVOD_LOG_LEVEL", own=True
    )

    def __post_init__(self) -> None:
        for name, least in (
            ("segment_bytes", 0),
            ("node_segment_bytes", 1),
            ("window", 0),
            ("fusion_bytes", 0),
            ("cache_capacity", 0),
            ("stall_warn_seconds", 0),
            ("stall_fail_seconds", 0),
            ("time_slice", 0),
            *((name, 0) for name in NETWORK),
        ):
            if not getattr(self, name) >= least:
                raise ValueError(f"option {name} must be at least {least}, not {getattr(self, name)!r}")
        for name in ("shared_memory", "tune"):
            if getattr(self, name) not in ("auto", "on", "off"):
                raise ValueError(f"option {name} must be auto, on or off, not {getattr(self, name)!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Raises ValueError naming the variable for a value that makes no sense."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in dataclasses.fields(cls):
            for variable in option.metadata["variables"]:
                if environment.get(variable, "") != "":
                    try:
                        values[option.name] = option.metadata["parse"](environment[variable])
                    except ValueError as error:
                        raise ValueError(f"{variable}={environment[variable]!r}: {error}") from None
                    break
        ours = {option.name for option in dataclasses.fields(cls) if option.metadata["variables"][0] in environment}
        switches = {name: value for name, value in horovod_options.switched(environment).items() if name not in ours}
        return cls(**(values | switches | overrides))

    def network(self) -> _core.Network:
        """What the model uses: what is set or measured, and a guess for the rest."""
        return _core.Network(**{name: getattr(self, name) or guess for name, guess in NETWORK.items()})

    def channel(
        self, hosts: Sequence[int], own: _core.OwnAlgorithms | None = None, account: _core.Account | None = None
    ) -> _core.ChannelConfig:
        """`hosts`: of each rank; `own`: users' algorithms; `account`: where calls are counted. Raises ValueError for a
        tuning file that cannot be used."""
        return _core.ChannelConfig(
            self.segment_bytes,
            self.node_segment_bytes,
            self.window,
            self.check,
            self.network(),
            hosts,
            rules.parse(self.tuning_file),
            stall_warn_seconds=self.stall_warn_seconds,
            algorithm=self.algorithm,
            own=own,
            account=account,
            device_path=self.gpu_path,
        )

    def engine(
        self, hosts: Sequence[int], own: _core.OwnAlgorithms | None = None, account: _core.Account | None = None
    ) -> _core.EngineConfig:
        return _core.EngineConfig(
            self.fusion_bytes,
            self.cache_capacity,
            self.stall_warn_seconds,
            self.stall_fail_seconds,
            self.channel(hosts, own, account),
        )

    def agreed(self, all_configs: list[Config], rank: int) -> Config:
        """What this rank uses, given every rank's: rank 0's values except for options that are each rank's own.

        Rank 0 logs one note if others had asked for something else.
        """
        first = all_configs[0]
        shared = [option.name for option in dataclasses.fields(self) if not option.metadata["own"]]
        if rank == 0:
            notes = []
            for name in shared:
                others = [r for r, config in enumerate(all_configs) if getattr(config, name) != getattr(first, name)]
                if others:
                    notes.append(
                        f"{name} = {getattr(first, name)!r} (ranks {', '.join(map(str, others))} had other values)"
                    )
            if notes:
                logger.warning("ranks were configured differently; rank 0's settings are used: %s", "; ".join(notes))
        return dataclasses.replace(self, **{name: getattr(first, name) for name in shared})


@functools.cache
def from_environment() -> Config:
    """The process's options, read once."""
    config = Config.from_environment()
    logger.setLevel(config.log_level.upper())
    return config


def options() -> list[dict[str, Any]]:
    """All options as rows: name, default, variables, meaning. For documentation and `ringcomm info`."""
    return [
        {
            "name": option.name,
            "default": option.default,
            "variables": option.metadata["variables"],
            "meaning": option.metadata["meaning"],
        }
        for option in dataclasses.fields(Config)
    ]
