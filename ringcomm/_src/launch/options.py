"""Defines the options of `ringrun`: its own, and all options of Horovod 0.28's launcher."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NamedTuple

from ringcomm._src.launch import elastic_options
from ringcomm._src.launch.numbers import not_negative, positive

START_TIMEOUT = 120  # default of --start-timeout, in seconds

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all options to `parser`. The rest of the command line is the program."""
    _add_job(parser)
    _add_hosts(parser.add_argument_group("hosts"))
    elastic_options.add_arguments(parser.add_argument_group("elastic jobs, with varying ranks (docs/elastic.md)"))
    _add_output(parser.add_argument_group("output"))
    _add_mpi(parser.add_argument_group("MPI"))
    _add_engine(parser.add_argument_group("engine (each sets an environment variable of the ranks)"))
    _add_accepted(parser)
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="COMMAND", help="program of every rank, with its arguments"
    )


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-np",
        "-n",
        "--num-proc",
        dest="num_proc",
        type=positive,
        metavar="N",
        help="number of ranks; default: the hosts' slots, or Slurm's number of tasks",
    )
    parser.add_argument(
        "-x",
        dest="variables",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set an environment variable on all ranks; without VALUE, to its value here",
    )
    parser.add_argument(
        "--as-horovod",
        action="store_true",
        help="'import horovod' imports ringcomm: a script written for Horovod runs unchanged",
    )
    parser.add_argument(
        "--survive",
        action="store_true",
        help="the other ranks continue if a rank dies (for optimizers with on_loss='continue'): with Open MPI always, "
        "with MPICH after an exception or an exit",
    )
    parser.add_argument("-cb", "--check-build", action="store_true", help="list this installation's features and exit")
    parser.add_argument("--verbose", action="store_true", help="print the hosts, the MPI and the command line")
    parser.add_argument("--dry-run", action="store_true", help="only print the command line that would start the ranks")
    parser.add_argument(
        "--start-timeout",
        type=positive,
        metavar="SECONDS",
        default=os.environ.get("HOROVOD_START_TIMEOUT") or START_TIMEOUT,
        help="end the job if not all ranks have started within this time "
        f"(default {START_TIMEOUT}, or HOROVOD_START_TIMEOUT)",
    )
    parser.add_argument(
        "--config-file", metavar="FILE", help="Horovod's YAML file of options; the command line overrides it"
    )


def _add_hosts(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("-H", "--hosts", metavar="NAME:SLOTS,...", help="hosts, and the number of ranks for each")
    which.add_argument(
        "-hostfile", "--hostfile", metavar="FILE", help="file with one host a line: 'name slots=2', 'name:2' or 'name'"
    )
    which.add_argument(
        "--host-discovery-script",
        metavar="SCRIPT",
        help="command that prints one host a line, 'name:2'; an elastic job runs it every second",
    )
    group.add_argument(
        "--slots-per-host",
        "--slots",
        type=positive,
        metavar="N",
        help="slots of hosts that are printed without a number",
    )
    group.add_argument("--ssh-command", metavar="COMMAND", help="command that replaces ssh")
    group.add_argument("-p", "--ssh-port", type=positive, metavar="PORT")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE")
    group.add_argument(
        "--network-interfaces",
        "--network-interface",
        dest="interfaces",
        action="append",
        type=lambda text: [name.strip() for name in text.split(",") if name.strip()],
        default=[],
        metavar="NAME,...",
        help="network interfaces that ranks may use",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-filename", metavar="DIR", help="also write DIR/rank.N/stdout and .../stderr")
    group.add_argument(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        dest="timestamps",
        action="store_true",
        help="print the time before every line of output",
    )
    group.add_argument(
        "--tag-output",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print '[rank]<stdout>: ' before every line; without it, ringrun becomes the launcher and does not watch "
        "the ranks (except in elastic jobs)",
    )


def _add_mpi(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mpirun",
        metavar="FILE",
        default=os.environ.get("RINGCOMM_MPIRUN"),
        help="launcher to use; default: RINGCOMM_MPIRUN, or the launcher beside the MPI library that mpi4py loads",
    )
    group.add_argument(
        "--launcher",
        choices=("auto", "mpirun", "srun"),
        default="auto",
        help="auto: srun inside a Slurm allocation, mpirun otherwise",
    )
    group.add_argument(
        "--mpi-args", default="", metavar="ARGUMENTS", help='of the launcher: --mpi-args="--map-by core"'
    )
    group.add_argument("--binding-args", metavar="ARGUMENTS", help="of the launcher, in place of ringcomm's binding")
    group.add_argument("--tcp", action="store_true", help="between hosts, use TCP only")
    controller = group.add_mutually_exclusive_group()
    for name in CONTROLLERS:
        controller.add_argument(
            f"--{name}",
            dest="controller",
            action="store_const",
            const=name,
            help="accepted; MPI is always used",
        )
    group.add_argument(
        "--mpi-threads-disable",
        action=argparse.BooleanOptionalAction,
        help="start MPI without support for threads: operations then make no progress in the background",
    )


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fusion-threshold-mb", type=not_negative, metavar="MB", help="largest fused buffer; 0: none")
    group.add_argument(
        "--cache-capacity",
        type=not_negative,
        metavar="N",
        help="number of operation names to cache",
    )
    group.add_argument("--timeline-filename", metavar="FILE", help="write a Chrome trace; {rank} in FILE: one per rank")
    group.add_argument(
        "--timeline-mark-cycles", action=argparse.BooleanOptionalAction, help="mark rounds of agreement in it"
    )
    group.add_argument(
        "--timeline-last", type=not_negative, metavar="N", help="keep only its newest events, N to 2 N; 0: all"
    )
    group.add_argument("--no-stall-check", action="store_true", default=None, help="never report stalled operations")
    group.add_argument("--stall-check", dest="no_stall_check", action="store_false", help=argparse.SUPPRESS)
    group.add_argument("--stall-check-warning-time-seconds", type=not_negative, metavar="SECONDS")
    group.add_argument("--stall-check-shutdown-time-seconds", type=not_negative, metavar="SECONDS")
    group.add_argument("--thread-affinity", metavar="CORES", help="cores of the worker thread, one per local rank")
    group.add_argument("--log-level", type=str.upper, choices=LEVELS)


class Accepted(NamedTuple):
    """An option of Horovod that has no effect, with the reason."""

    name: str
    kind: str  # "flag" (has a --no- form), "true" (has none), or the type of its value
    why: str


_TWO_LEVELS = "ranks of a host always use shared memory, and hosts exchange messages"
_NO_TUNING = "algorithms are chosen by a model of the network, see 'ringcomm bench' and docs/options.md"
CONTROLLERS = {
    "mpi": "MPI always starts the ranks and transfers messages",
    "gloo": "MPI transfers messages, and the launcher of MPI or Slurm starts the ranks",
    "jsrun": "the launcher of MPI or Slurm starts the ranks",
}
ACCEPTED = (
    Accepted("cycle-time-ms", "float", "there are no cycles: an operation starts when all ranks have submitted it"),
    Accepted("hierarchical-allreduce", "flag", _TWO_LEVELS),
    Accepted("hierarchical-allgather", "flag", _TWO_LEVELS),
    Accepted("torus-allreduce", "flag", _TWO_LEVELS),
    Accepted("autotune", "flag", _NO_TUNING),
    Accepted("autotune-log-file", "str", _NO_TUNING),
    Accepted("autotune-warmup-samples", "int", _NO_TUNING),
    Accepted("autotune-steps-per-sample", "int", _NO_TUNING),
    Accepted("autotune-bayes-opt-max-samples", "int", _NO_TUNING),
    Accepted("autotune-gaussian-process-noise", "float", _NO_TUNING),
    Accepted("num-nccl-streams", "int", "all calls of NCCL use one stream"),
    Accepted("gloo-timeout-seconds", "int", "Gloo is not used"),
    Accepted("disable-cache", "true", "ringrun caches nothing between jobs"),
    Accepted("log-with-timestamp", "true", "set the format of the Python logger 'ringcomm' instead"),
    Accepted("log-without-timestamp", "true", "set the format of the Python logger 'ringcomm' instead"),
)
_ALIASES = {
    "log-with-timestamp": ("--no-log-hide-timestamp",),
    "log-without-timestamp": ("--log-hide-timestamp",),
}
_KINDS: dict[str, dict[str, Any]] = {
    "flag": {"action": argparse.BooleanOptionalAction},
    "true": {"action": "store_true", "default": None},
    **{"int": {"type": int}, "float": {"type": float}, "str": {"type": str}},
}


def _add_accepted(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(f"--{option.name}" for option in ACCEPTED)
    group = parser.add_argument_group("options of Horovod that are accepted without effect", names)
    for option in ACCEPTED:
        flags = (f"--{option.name}", *_ALIASES.get(option.name, ()))
        group.add_argument(*flags, **_KINDS[option.kind], help=argparse.SUPPRESS)


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that accepts unambiguous abbreviations of long options of ringrun.

    argparse's own search for abbreviations would also examine the program's arguments, and report
    some of them as ambiguous.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        index = 0
        while index < len(words) and words[index].startswith("-") and words[index] != "--":
            name, equals, value = words[index].partition("=")
            words[index] = self._full_name(name) + equals + value
            action = self._option_string_actions.get(words[index])
            index += 1
            if action is not None and not equals:
                index += action.nargs if isinstance(action.nargs, int) else 1
        return super().parse_known_args(words, namespace)

    def _full_name(self, name: str) -> str:
        known = self._option_string_actions
        if not name.startswith("--") or name in known:
            return name
        matches = [option for option in known if option.startswith(name)]
        if len({id(known[option]) for option in matches}) > 1:
            self.error(f"ambiguous option: {name} could match {', '.join(matches)}")
        return matches[0] if matches else name


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ringrun",
        usage="ringrun -np N [-H host:slots,...] [options] COMMAND ...",
        description="Starts a program on ranks, with the MPI that mpi4py loads.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    return parser
