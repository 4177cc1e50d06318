"""Implements the commands `ringcomm` and `python -m ringcomm`: one module for each subcommand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. `arguments` None: those of the command line."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["run"]:
        from ringcomm._src.cli import ringrun

        return ringrun.main(arguments[1:])
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:  # for example `ringcomm show ring | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands except `run`, which uses the parser of `ringrun`."""
    from ringcomm._src.base.version import __version__
    from ringcomm._src.cli import advise, bench, demo, info, show, simulate, timeline, tune

    parser = argparse.ArgumentParser(prog="ringcomm", description="MPI-based collective communication for training.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module, text in (
        ("demo", demo, "train digits on two ranks of this host, and compare them with one process (needs PyTorch)"),
        ("info", info, "show the installed software, the enabled features, and why others are disabled"),
        ("show", show, "show a schedule as a table or a picture, with its proof and its cost"),
        ("simulate", simulate, "predict the time of each schedule on an existing or planned cluster"),
        ("advise", advise, "predict what more ranks bring to a training step, and what to change first"),
        ("timeline", timeline, "show the last operations of each rank, and the ranks for which operations wait"),
        ("tune", tune, "measure the network between ranks, for later jobs (run it under ringrun)"),
        ("bench", bench, "time collectives and compare their algorithms with MPI (run it under ringrun)"),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    commands.add_parser("run", help="start a program on several ranks; identical to ringrun, see 'ringcomm run --help'")
    return parser
