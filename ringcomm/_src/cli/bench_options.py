"""Defines the options of `ringcomm bench`, and checks them before anything is measured."""

from __future__ import annotations

import argparse

from ringcomm._src.algorithms.registry import registered
from ringcomm._src.base.ops import FLOATING, NUMBERS, Adasum, Op
from ringcomm._src.cli.bench_cases import SHARED_ARRAYS, numpy_dtype
from ringcomm._src.cli.outputs import output_trouble
from ringcomm._src.cli.sizes import parse_names, parse_sizes
from ringcomm._src.cli.wires import wire_names
from ringcomm._src.core import _core

DEFAULT_SIZES = "4,1K,32K,1M,16M"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("collective", choices=_core.COLLECTIVES, help="collective to time")
    add(
        "--sizes",
        type=parse_sizes,
        default=None,
        metavar="LIST",
        help=f"sizes in bytes (default {DEFAULT_SIZES}); 4-64M: 4, 8, 16 and so on to 64M; "
        "for allgather, reducescatter and alltoall: the size of all ranks' parts together",
    )
    add(
        "--algorithms",
        default=f"auto,{SHARED_ARRAYS}",
        help='"all", or names separated by commas; "auto": the automatic choice; '
        f'"{SHARED_ARRAYS}": the automatic choice with arrays of Communicator.empty (default: these two)',
    )
    add("--file", metavar="FILE.py", help="run this file first, to register custom algorithms")
    add("--against", choices=("mpi", "none"), default="mpi", help="also time MPI's collective (default mpi)")
    add(
        "--wire",
        type=wire_names,
        default=[],
        metavar="LIST",
        help='allreduce: also time wire formats, for example bfloat16,int8,topk:0.001, or "all"; '
        "their #wrong is 0 if the results of all ranks are identical",
    )
    add("--dtype", choices=NUMBERS, default="float32", help="element type (default float32)")
    ops = [op.name.lower() for op in Op if op.scaled and op != Adasum]
    add("--op", choices=ops, default="sum", help="reduction (default sum)")
    add("--root", type=int, default=0, help="root of broadcast and reduce (default 0)")
    add(
        "--repeat",
        type=int,
        default=15,
        help="number of timed calls of each large size (default 15); small sizes are timed up to 20 times as often",
    )
    add("--warmup", type=int, default=30, help="untimed calls first, until adaptive choices are made (default 30)")
    add(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="memory of the buffers: cpu (the default), cuda (each rank's GPU) or cuda:1; for a GPU, MPI's collective "
        "works on copies in host memory",
    )
    add("--in-place", action="store_true", help="run allreduce in place")
    add("--seed", type=int, default=0, help="seed of the order in which algorithms take turns (default 0)")
    add("--json", metavar="FILE", help="also write rows, all times and a description of the machine to FILE")
    add(
        "--plot",
        metavar="FILE.png",
        help="also plot the ratio to MPI's time over size, or times without MPI's (needs matplotlib)",
    )


def check(options: argparse.Namespace, size: int) -> str | None:
    """Returns why the options cannot be used, identically on all ranks; None if they can."""
    for name in () if options.algorithms == "all" else parse_names(options.algorithms):
        if name in ("auto", SHARED_ARRAYS) or registered(options.collective, name):
            continue
        if problem := algorithm_problem(options.collective, name, size):
            return problem
    if options.device != "cpu" and options.collective == "barrier":
        return "--device does not apply to barrier, which has no buffers"
    if not 0 <= options.root < size:
        return f"--root {options.root} is not one of the {size} ranks"
    if options.wire and (options.collective != "allreduce" or _core.DTYPES.index(options.dtype) not in FLOATING):
        return "--wire works only with allreduce of floating-point numbers"
    if options.repeat < 1 or options.warmup < 0:
        return "--repeat must be at least 1 and --warmup at least 0"
    try:
        numpy_dtype(options.dtype)
    except ValueError as error:
        return str(error)
    return output_trouble(options.json, options.plot)


def algorithm_problem(collective: str, algorithm: str, size: int = 0) -> str | None:
    """Returns None if the algorithm exists, else a message."""
    try:
        _core.check_algorithm(collective, algorithm, size)
    except ValueError as error:
        return str(error)
    return None
