"""Implements `ringcomm simulate`: predicts the time of every schedule of a collective on a cluster.

The cluster need not exist. The code that chooses schedules at run time makes the predictions, on
links that hosts share if a topology is given (docs/simulate.md). simulate_report.py and
simulate_plots.py show them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial

from ringcomm._src.base.ops import wire_code
from ringcomm._src.cli.bench_cases import bus_factor
from ringcomm._src.cli.outputs import output_trouble
from ringcomm._src.cli.simulate_report import Row, gains, table, write_json
from ringcomm._src.cli.sizes import parse_link, parse_names, parse_seconds, parse_sizes
from ringcomm._src.cli.text import refuse
from ringcomm._src.cli.topologies import BLOCK, hosts_of_ranks, parse_topology
from ringcomm._src.cli.wires import parse_wire
from ringcomm._src.config.config import NETWORK
from ringcomm._src.config.topologies import Topology
from ringcomm._src.core import _core

DEFAULT_RANKS, DEFAULT_SIZES = "8,64,1024,16384", "4K,1M,64M"
LATENCY = "latency"  # limit of an algorithm in which links take less time than messages, sums and latencies


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("collective", choices=_core.COLLECTIVES, help="collective to predict")
    add(
        "--ranks",
        type=parse_sizes,
        default=parse_sizes(DEFAULT_RANKS),
        metavar="LIST",
        help=f"numbers of ranks (default {DEFAULT_RANKS}); 8-1M: 8, 16, 32 and so on to 1048576",
    )
    add(
        "--sizes",
        type=parse_sizes,
        default=parse_sizes(DEFAULT_SIZES),
        metavar="LIST",
        help=f"sizes in bytes (default {DEFAULT_SIZES}); 4K-64M: 4K, 8K, 16K and so on to 64M; "
        "for allgather, reducescatter and alltoall: the size of all ranks' parts together",
    )
    add("--ranks-per-host", type=int, default=1, metavar="N", help="ranks that share a host's link (default 1)")
    add(
        "--topology",
        type=parse_topology,
        metavar="NAME:VALUES",
        help="links that hosts share: fat-tree:oversubscription=4 (,rack=16), torus:8x8, rails:4 or a FILE.json",
    )
    add(
        "--placement",
        default=BLOCK,
        metavar="NAME",
        help="hosts of the ranks: block (the default: hosts are filled one after another), round-robin, or a file "
        "with the number of each rank's host",
    )
    add("--link", type=parse_link, metavar="RATE,LATENCY", help="network link of each host, for example 200mbit,50us")
    add("--host-link", type=parse_link, metavar="RATE,LATENCY", help="messages inside a host, for example 40gbit,1us")
    add("--network", metavar="FILE.json", help="file of 'ringcomm tune --json'; other options override its values")
    add("--gap", type=parse_seconds, metavar="TIME", help="time of each further message of a round, for example 1us")
    add("--gamma", type=float, metavar="SECONDS", help="seconds per byte reduced")
    add("--copy", type=float, metavar="SECONDS", help="seconds per byte copied in a host's memory")
    add("--algorithms", default="all", help='"all" (the default), or names separated by commas')
    add("--wire", type=_wire, metavar="NAME", help="wire format of float32 in allreduce: bfloat16, int8, topk:0.001")
    add("--json", metavar="FILE", help="also write all rows and the network to FILE")
    add("--plot", metavar="FILE.png", help="also plot times relative to the fastest one (needs matplotlib)")
    add("--heatmap", metavar="FILE.png", help="also draw the fastest algorithm over ranks and sizes (needs matplotlib)")


def run(options: argparse.Namespace) -> int:
    if trouble := output_trouble(options.json, options.plot, options.heatmap):
        return refuse("simulate", trouble)
    try:
        network, guessed = network_of(options)
        if options.wire and options.collective != "allreduce":
            raise ValueError("--wire works only with allreduce")
        predict = partial(
            simulate,
            options.collective,
            options.ranks,
            options.sizes,
            options.ranks_per_host,
            network,
            topology=options.topology,
            placement=options.placement,
        )
        rows = predict(options.algorithms, options.wire or 0)
        plain = predict() if options.wire else []
    except (ValueError, OSError, KeyError, argparse.ArgumentTypeError) as error:
        return refuse("simulate", error)
    print("\n".join(table(options, rows, network, guessed)), flush=True)
    if options.wire:
        print("\n".join(["", *gains(rows, plain, options.wire)]), flush=True)
    if options.json:
        write_json(options, rows, network, guessed)
    if options.plot or options.heatmap:
        from ringcomm._src.cli import simulate_plots

        if options.plot:
            simulate_plots.plot(options, rows)
        if options.heatmap:
            simulate_plots.heat_map(options, rows)
    return 0


def network_of(options: argparse.Namespace) -> tuple[_core.Network, list[str]]:
    """Returns the network, and the names of the parameters that are guessed.

    Values of the command line take precedence over those of the file. The guesses are those of
    ringcomm._src.config.config.NETWORK.
    """
    values: dict[str, float] = {}
    if options.network:
        with open(options.network, encoding="utf-8") as file:
            known = json.load(file)["network"]
        values = {name: float(known[name]) for name in NETWORK if known[name] > 0}
    if options.link:
        values["beta"], values["alpha"] = options.link
        values["hidden"] = 0.0
    if options.host_link:
        values["host_beta"], values["host_alpha"] = options.host_link
    values |= {name: value for name in ("gap", "gamma", "copy") if (value := getattr(options, name)) is not None}
    return _core.Network(**(NETWORK | values)), [name for name in NETWORK if name not in values]


def simulate(
    collective: str,
    ranks: Sequence[int],
    sizes: Sequence[int],
    ranks_per_host: int,
    network: _core.Network,
    algorithms: str = "all",
    wire: int = 0,
    topology: Topology | None = None,
    placement: str = BLOCK,
) -> list[Row]:
    """Prices every algorithm that supports the wire format, at every size and number of ranks.

    Each algorithm uses its cheapest segmentation.

    Parameters
    ----------
    topology : Topology | None
        Links that hosts share; None: each host has its own link, and nothing is shared.
    placement : str
        Hosts of the ranks (hosts_of_ranks).

    Raises
    ------
    ValueError
        A number is below one, an algorithm does not exist, or the topology has too few hosts.
    """
    if ranks_per_host < 1 or min(ranks) < 1:
        raise ValueError("--ranks and --ranks-per-host must be at least 1")
    requested = None if algorithms == "all" else parse_names(algorithms)
    rows: list[Row] = []
    for count in ranks:
        hosts = hosts_of_ranks(placement, count, ranks_per_host)
        links = topology.build(max(hosts) + 1, network.beta) if topology else None
        menu = _core.Menu(collective, count, hosts, network, links)
        kinds = [*links.kinds, LATENCY] if links else [""]  # number -1 is the last one
        for size in [0] if collective == "barrier" else sizes:
            options = _options(menu, size, requested, collective, wire, topology)
            rows += sorted(
                (_row(collective, count, size, option, kinds) for option in options), key=lambda row: row.time
            )
    return rows


def _options(
    menu: _core.Menu, size: int, requested: list[str] | None, collective: str, wire: int, topology: Topology | None
) -> list[_core.Option]:
    every = menu.options("", size, memory=True, wire=wire)
    if requested is None:
        by_name = [a.name for a in _core.algorithms() if a.collective == collective and not a.automatic]
        others = (option for name in by_name for option in menu.options(name, size, memory=True, wire=wire))
        priced = {option.name for option in every}  # on a topology, they may be chosen
        return every + [option._replace(chosen=False) for option in others if option.name not in priced]
    chosen = {option.name for option in every if option.chosen}
    found: list[_core.Option] = []
    for name in requested:
        variants = menu.options(name, size, memory=True, wire=wire) or [
            option for option in every if option.name == name
        ]
        if not variants:
            known = ", ".join(option.name for option in every)
            many = "; on a topology some have too many messages to count: use fewer ranks" if topology else ""
            raise ValueError(f"algorithm {name} cannot run {collective} here; these can: {known}{many}")
        found += [option for option in variants if option.name == name] or variants  # for an alias: all its algorithms
    return [option._replace(chosen=option.name in chosen) for option in found]


def _row(collective: str, ranks: int, size: int, option: _core.Option, kinds: Sequence[str]) -> Row:
    seconds = option.price.seconds
    busbw = size / seconds * bus_factor(collective, ranks) if seconds > 0 else 0.0
    segment, limit = min(option.segment, size), kinds[option.price.kind]
    return Row(ranks, size, option.name, segment, option.window, seconds, busbw, option.chosen, limit)


def _wire(text: str) -> int:
    return wire_code(parse_wire(text))
