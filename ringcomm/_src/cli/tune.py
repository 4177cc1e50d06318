"""Implements `ringcomm tune`: measures the network between ranks, and saves it for later jobs."""

from __future__ import annotations

import argparse
import time

from ringcomm._src.algorithms import tuning, tuning_cache
from ringcomm._src.cli import measured
from ringcomm._src.cli.sizes import human_time
from ringcomm._src.cli.text import refuse
from ringcomm._src.config.config import NETWORK

MEANINGS = {
    "alpha": ("between hosts: latency of a short message", ""),
    "beta": ("between hosts: time per byte", "/B"),
    "gap": ("between hosts: time of each further message of a round", ""),
    "hidden": ("between hosts: time of a transfer that overlaps with the latency, if the link was idle before", ""),
    "host_alpha": ("inside a host: latency of a short message", ""),
    "host_beta": ("inside a host: time per byte", "/B"),
    "gamma": ("time per byte reduced", "/B"),
    "copy": ("time per byte copied in memory", "/B"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="also write the measured numbers to FILE")
    parser.add_argument("--no-cache", action="store_true", help="do not save the numbers for later jobs")


def run(options: argparse.Namespace) -> int:
    from ringcomm._src.platform.mpi_library import load
    from ringcomm._src.platform.mpi_link import MpiLink

    link = MpiLink(load().COMM_WORLD)
    try:
        if link.size == 1:
            return refuse("tune", "one rank has no network to measure: run 'ringrun -np RANKS ringcomm tune'")
        begin = time.perf_counter()
        network = tuning.measure(link)
        seconds = time.perf_counter() - begin
        if link.rank == 0:
            report(options, link, network, seconds)
    finally:
        link.free()
    return 0


def report(options: argparse.Namespace, link: tuning.Link, network: dict[str, float], seconds: float) -> None:
    hosts = link.topology.hosts
    print(f"# {link.size} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)}, measured in {seconds:.2f} s")
    for name, (meaning, per) in MEANINGS.items():
        value = network[name]
        shown = (
            f"{human_time(value)}{per}" if value > 0 else f"not measured; {human_time(NETWORK[name])}{per} is assumed"
        )
        rate = f" ({1e-9 / value:.3g} GB/s)" if per and value > 0 else ""
        print(f"{name:<12}{shown + rate:<32}  {meaning}")
    if not options.no_cache:
        file = tuning_cache.save(link.topology, network)
        print(f"saved in {file}" if file else f"could not be saved in {tuning_cache.directory()}")
    if options.json:
        measured.write_json(options.json, {"hosts": len(hosts), "ranks": link.size, "network": network})
