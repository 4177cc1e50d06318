"""Implements `ringcomm tune`: measures the network between the ranks, and saves the numbers for later jobs."""

from __future__ import annotations

import argparse
import time

from ringcomm._src.algorithms import tuning, tuning_cache
from ringcomm._src.cli import measured
from ringcomm._src.cli.sizes import human_time
from ringcomm._src.cli.text import refuse
from ringcomm._src.config.config import NETWORK

MEANINGS = {
    "alpha": ("between hosts: until a short message has come", ""),
    "beta": ("between hosts: per byte", "/B"),
    "gap": ("between hosts: each further message of a round", ""),
    "hidden": ("between hosts: of sending, that a link makes up for after a pause", ""),
    "host_alpha": ("messages inside a host: until a short one has come", ""),
    "host_beta": ("messages inside a host: per byte", "/B"),
    "gamma": ("per byte reduced", "/B"),
    "copy": ("per byte copied in memory", "/B"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the numbers there")
    parser.add_argument("--no-cache", action="store_true", help="do not keep them for later jobs")


def run(options: argparse.Namespace) -> int:
    from ringcomm._src.platform.mpi_library import load
    from ringcomm._src.platform.mpi_link import MpiLink

    link = MpiLink(load().COMM_WORLD)
    try:
        if link.size == 1:
            return refuse("tune", "start it on the ranks that will work together: mpirun ... ringcomm tune")
        begun = time.perf_counter()
        network = tuning.measure(link)
        spent = time.perf_counter() - begun
        if link.rank == 0:
            report(options, link, network, spent)
    finally:
        link.free()
    return 0


def report(options: argparse.Namespace, link: tuning.Link, network: dict[str, float], spent: float) -> None:
    hosts = link.topology.hosts
    print(f"# {link.size} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)}, measured in {spent:.2f} s")
    for name, (meaning, per) in MEANINGS.items():
        value = network[name]
        shown = (
            f"{human_time(value)}{per}" if value > 0 else f"not measured; {human_time(NETWORK[name])}{per} is assumed"
        )
        rate = f" ({1e-9 / value:.3g} GB/s)" if per and value > 0 else ""
        print(f"{name:<12}{shown + rate:<32}  {meaning}")
    if not options.no_cache:
        file = tuning_cache.save(link.topology, network)
        print(f"kept in {file}" if file else f"could not be kept in {tuning_cache.directory()}")
    if options.json:
        measured.write_json(options.json, {"hosts": len(hosts), "ranks": link.size, "network": network})
