"""Implements `ringcomm demo`: trains on this host, and compares ranks with one process."""

from __future__ import annotations

import argparse

from ringcomm._src.cli.text import refuse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default 2)")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the data (default 6)")


def run(options: argparse.Namespace) -> int:
    import ringcomm

    try:
        ringcomm.demo(options.ranks, options.epochs)
    except (ImportError, ValueError, RuntimeError) as error:
        return refuse("demo", error)
    return 0
