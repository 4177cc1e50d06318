"""Defines the command line of `ringrun`: its own options, and all options of Horovod 0.28's launcher."""

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
    elastic_options.add_arguments(parser.add_argument_group("elastic jobs, whose ranks come and go (docs/elastic.md)"))
    _add_output(parser.add_argument_group("output"))
    _add_mpi(parser.add_argument_group("MPI"))
    _add_engine(parser.add_argument_group("engine (each sets an environment variable of the ranks)"))
    _add_accepted(parser)
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="COMMAND", help="what every rank runs, with its arguments"
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
        help="set an environment variable on all ranks, or hand on this one's",
    )
    parser.add_argument(
        "--as-horovod",
        action="store_true",
        help="what the program imports as horovod is ringcomm: a script written for Horovod runs unchanged",
    )
    parser.add_argument(
        "--survive",
        action="store_true",
        help="a rank that dies does not end the others (for optimizers with on_loss='continue'): on Open MPI however "
        "it dies, on MPICH by an exception or an exit",
    )
    parser.add_argument("-cb", "--check-build", action="store_true", help="say what this installation can do, and end")
    parser.add_argument("--verbose", action="store_true", help="say what is run, and where")
    parser.add_argument("--dry-run", action="store_true", help="only print the command line that would start the ranks")
    parser.add_argument(
        "--start-timeout",
        type=positive,
        metavar="SECONDS",
        default=os.environ.get("HOROVOD_START_TIMEOUT") or START_TIMEOUT,
        help=f"give up if not all ranks have started by then (default {START_TIMEOUT}, or HOROVOD_START_TIMEOUT)",
    )
    parser.add_argument("--config-file", metavar="FILE", help="Horovod's YAML file of options; the command line wins")


def _add_hosts(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("-H", "--hosts", metavar="NAME:SLOTS,...", help="hosts, and how many ranks each takes")
    which.add_argument(
        "-hostfile", "--hostfile", metavar="FILE", help="a host a line: 'name slots=2', 'name:2' or 'name'"
    )
    which.add_argument(
        "--host-discovery-script",
        metavar="SCRIPT",
        help="prints a host a line, 'name:2'; in an elastic job it is run every second",
    )
    group.add_argument(
        "--slots-per-host", "--slots", type=positive, metavar="N", help="for hosts that the script names alone"
    )
    group.add_argument("--ssh-command", metavar="COMMAND", help="what to call in place of ssh")
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
        help="the time in front of every line of output",
    )
    group.add_argument(
        "--tag-output",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="'[rank]<stdout>: ' in front of every line; without it, mpirun runs the command itself, unwatched (except "
        "in elastic jobs)",
    )


def _add_mpi(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mpirun",
        metavar="FILE",
        default=os.environ.get("RINGCOMM_MPIRUN"),
        help="the launcher to use; default: RINGCOMM_MPIRUN, or the one beside the MPI library that mpi4py loads",
    )
    group.add_argument(
        "--launcher",
        choices=("auto", "mpirun", "srun"),
        default="auto",
        help="auto: srun inside a Slurm allocation, mpirun otherwise",
    )
    group.add_argument("--mpi-args", default="", metavar="ARGUMENTS", help='as it is: --mpi-args="--map-by core"')
    group.add_argument("--binding-args", metavar="ARGUMENTS", help="to mpirun, in place of ours that bind nothing")
    group.add_argument("--tcp", action="store_true", help="between hosts, use TCP only")
    controller = group.add_mutually_exclusive_group()
    for name in CONTROLLERS:
        controller.add_argument(
            f"--{name}", dest="controller", action="store_const", const=name, help="accepted; it is MPI"
        )
    group.add_argument(
        "--mpi-threads-disable",
        action=argparse.BooleanOptionalAction,
        help="start MPI without support for threads: nothing then happens in the background",
    )


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fusion-threshold-mb", type=not_negative, metavar="MB", help="largest fused buffer; 0: none")
    group.add_argument("--cache-capacity", type=not_negative, metavar="N", help="names remembered by agreement")
    group.add_argument("--timeline-filename", metavar="FILE", help="write a Chrome trace; {rank} in it: one per rank")
    group.add_argument("--timeline-mark-cycles", action=argparse.BooleanOptionalAction, help="mark rounds of agreement")
    group.add_argument("--no-stall-check", action="store_true", default=None, help="never warn of stalled operations")
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


_TWO_LEVELS = "ranks of one host always share memory, and messages go between hosts"
_NO_TUNING = "algorithms are chosen by a model of the network, see 'ringcomm bench' and docs/options.md"
CONTROLLERS = {
    "mpi": "it is always MPI that starts ranks and carries messages",
    "gloo": "messages go over MPI, and MPI's launcher or Slurm's starts the ranks",
    "jsrun": "MPI's launcher or Slurm's starts the ranks",
}
ACCEPTED = (
    Accepted("cycle-time-ms", "float", "there are no cycles: ranks agree as soon as an operation is ready everywhere"),
    Accepted("hierarchical-allreduce", "flag", _TWO_LEVELS),
    Accepted("hierarchical-allgather", "flag", _TWO_LEVELS),
    Accepted("torus-allreduce", "flag", _TWO_LEVELS),
    Accepted("autotune", "flag", _NO_TUNING),
    Accepted("autotune-log-file", "str", _NO_TUNING),
    Accepted("autotune-warmup-samples", "int", _NO_TUNING),
    Accepted("autotune-steps-per-sample", "int", _NO_TUNING),
    Accepted("autotune-bayes-opt-max-samples", "int", _NO_TUNING),
    Accepted("autotune-gaussian-process-noise", "float", _NO_TUNING),
    Accepted("num-nccl-streams", "int", "this version moves CPU buffers"),
    Accepted("gloo-timeout-seconds", "int", "Gloo is not used"),
    Accepted("disable-cache", "true", "nothing is cached between starts"),
    Accepted("log-with-timestamp", "true", "format the Python logger 'ringcomm' as you like"),
    Accepted("log-without-timestamp", "true", "format the Python logger 'ringcomm' as you like"),
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
    names = ", ".join(f"--{one.name}" for one in ACCEPTED)
    group = parser.add_argument_group("accepted from Horovod's users, but without effect here", names)
    for one in ACCEPTED:
        flags = (f"--{one.name}", *_ALIASES.get(one.name, ()))
        group.add_argument(*flags, **_KINDS[one.kind], help=argparse.SUPPRESS)


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that accepts unambiguous abbreviations of long options of ringrun.

    It does not touch the program's arguments. argparse itself would report these as ambiguous too.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        at = 0
        while at < len(words) and words[at].startswith("-") and words[at] != "--":
            name, equals, value = words[at].partition("=")
            words[at] = self._whole(name) + equals + value
            action = self._option_string_actions.get(words[at])
            at += 1
            if action is not None and not equals:
                at += action.nargs if isinstance(action.nargs, int) else 1
        return super().parse_known_args(words, namespace)

    def _whole(self, name: str) -> str:
        known = self._option_string_actions
        if not name.startswith("--") or name in known:
            return name
        meant = [option for option in known if option.startswith(name)]
        if len({id(known[option]) for option in meant}) > 1:
            self.error(f"ambiguous option: {name} could match {', '.join(meant)}")
        return meant[0] if meant else name


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ringrun",
        usage="ringrun -np N [-H host:slots,...] [options] COMMAND ...",
        description="Starts a program on ranks, with the MPI that mpi4py loads.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    return parser
