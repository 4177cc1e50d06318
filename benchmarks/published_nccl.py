"""Compares simulated times of rings and all-to-all with nccl-tests that were published.

    python benchmarks/published_nccl.py

benchmarks/results/published_nccl.json has the tables, with their sources. NCCL runs a ring for each
network adapter, over all GPUs, on an equal part of the data. So a host has a link with the rate of
its adapters together, and one ring is simulated. For all-to-all each adapter is a rail. The rows
that "fits" names fix the rate of an adapter, and the latency of a round for each number of
GPUs per host. The other rows are predicted. Tables that are "left_out" are not counted. The
comparison is written to the file.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import measure

from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

FILE = measure.RESULTS / "published_nccl.json"
START = {"alpha": 1e-5, "beta": 2e-11}


def predicted(cluster: dict[str, Any], table: dict[str, Any], nbytes: int, alpha: float, beta: float) -> float:
    hosts, per_host, links = table["hosts"], table["ranks_per_host"], table["links"]
    rails = _core.Topology.rails(hosts, links) if table["algorithm"] == "direct" else None
    values = dict.fromkeys(("gap", "hidden", "gamma", "copy"), 0.0) | {
        "alpha": alpha,
        "beta": beta if rails else beta / links,
        "host_alpha": alpha,
        "host_beta": cluster["host_beta"],
    }
    placement = [rank // per_host for rank in range(hosts * per_host)]
    menu = _core.Menu(table["collective"], len(placement), placement, _core.Network(**(NETWORK | values)), rails)
    (option,) = menu.options(table["algorithm"], nbytes, segment=nbytes, window=1)
    return option.price.seconds


def fitted(cluster: dict[str, Any]) -> tuple[float, dict[int, float]]:
    """Returns the seconds per byte of an adapter, and the latencies by GPUs per host."""
    beta, alphas = START["beta"], {table["ranks_per_host"]: START["alpha"] for table in cluster["tables"]}
    fits = [(table, *fit) for table in cluster["tables"] for fit in table.get("fits", {}).items()]
    for _ in range(50):  # each step corrects one parameter with the other ones fixed
        for table, name, nbytes in fits:
            per_host, seconds = table["ranks_per_host"], table["seconds"][table["nbytes"].index(nbytes)]
            now = {"alpha": alphas[per_host], "beta": beta}
            base = predicted(cluster, table, nbytes, **now)
            more = predicted(cluster, table, nbytes, **(now | {name: now[name] * 1.01}))
            now[name] += (seconds - base) / (more - base) * now[name] * 0.01
            beta, alphas[per_host] = now["beta"], now["alpha"]
    return beta, alphas


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=FILE, help="published tables, to which predictions are added")
    options = parser.parse_args()
    document = measure.read(options.json)
    for cluster in document["clusters"]:
        beta, alphas = fitted(cluster)
        cluster["beta"], cluster["alpha"] = beta, {str(per_host): alpha for per_host, alpha in alphas.items()}
        print(f"# {cluster['name']}: {1e-9 / beta:.1f} GB/s, latency in µs:", alphas)
        errors: dict[str, list[float]] = {}
        for table in cluster["tables"]:
            alpha = alphas[table["ranks_per_host"]]
            table["predicted"] = [predicted(cluster, table, nbytes, alpha, beta) for nbytes in table["nbytes"]]
            table["error"] = [mine / its - 1 for mine, its in zip(table["predicted"], table["seconds"], strict=True)]
            fits, pairs = table.get("fits", {}).values(), zip(table["nbytes"], table["error"], strict=True)
            own = [abs(error) for nbytes, error in pairs if nbytes not in fits]
            if "left_out" not in table:
                errors.setdefault(table["algorithm"], []).extend(own)
            size = f"{table['hosts']} x {table['ranks_per_host']}"
            print(f"{size:>7} {table['collective']:<14} {statistics.fmean(own):6.1%} mean {max(own):6.1%} most")
        cluster["errors"] = {name: measure.summary(own) for name, own in errors.items()}
        print("#", cluster["errors"])
    measure.write(options.json, document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
