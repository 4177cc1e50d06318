"""Measures a parameter server's link while workers push together, and the time of a push.

    python benchmarks/cluster.py --hosts 9 --rate 200mbit -- python benchmarks/store_bursts.py --rate 200e6 --label with

Rank 0 stores all weights; every other rank is a worker on its host. A worker sleeps for the time of
a computation, pushes a gradient and pulls the weights, again and again. All workers begin together.
The computation is so long that the exchanges of all workers, one after the other, take the share
`--load` of the time. `--label` names the results in the file, to compare two versions of ringcomm.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, machine, read, write

import ringcomm
from ringcomm import updates

EVERY = 0.02  # seconds between two samples of the link
IDLE = 0.1  # share of the link's rate below which a sample counts as idle
SMOOTH = 5  # samples of a mean


def link_bytes() -> int:
    """Returns the bytes that this host's links have received."""
    lines = (line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:])
    return sum(int(fields.split()[0]) for name, fields in lines if name.strip() != "lo")


def retransmitted() -> int:
    """Returns the number of TCP segments that this host has sent again."""
    heads, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp"))
    return int(values[heads.index("RetransSegs")])


def watch_link(samples: list[tuple[float, int]], over: threading.Event) -> None:
    while not over.wait(EVERY):
        samples.append((time.perf_counter(), link_bytes()))


def work(store: ringcomm.ParameterStore, gradient: Any, compute: float, exchanges: int) -> list[float]:
    """Returns the seconds of each exchange."""
    draw, seconds = random.Random(ringcomm.rank()), []
    for _ in range(exchanges):
        time.sleep(compute * draw.uniform(0.95, 1.05))
        begun = time.perf_counter()
        store.push_pull({"w": gradient})
        seconds.append(time.perf_counter() - begun)
    return seconds


def run(nbytes: int, exchanges: int, load: float, rate: float) -> dict[str, Any]:
    rank, workers = ringcomm.rank(), ringcomm.size() - 1
    alone = nbytes * 8 / rate
    compute = alone * (workers / load - 1)
    w = np.zeros(nbytes // 4, np.float32)
    samples: list[tuple[float, int]] = []
    seconds = [0.0] * exchanges
    with ringcomm.ParameterStore({"w": w}, updates.SGD(0.1), servers=[0]) as store:
        if rank > 0:
            store.push_pull({"w": np.zeros_like(w)})  # opens connections
        ringcomm.barrier()
        before, begun = retransmitted(), time.perf_counter()
        if rank > 0:
            seconds = work(store, np.full_like(w, 1e-3), compute, exchanges)
        else:
            over = threading.Event()
            watcher = threading.Thread(target=watch_link, args=(samples, over))
            watcher.start()
            store.serve()
            over.set()
            watcher.join()
        took = time.perf_counter() - begun
        again = retransmitted() - before
    every = ringcomm.allgather(np.array([[took, again, *seconds]]), name="results")
    times = [at - begun for at, _ in samples]
    use = np.diff([received for _, received in samples]) * 8 / np.diff(times) / rate if rank == 0 else []
    return {
        "alone": alone,
        "compute": compute,
        "took": float(every[1:, 0].max()),
        "retransmitted": int(every[:, 1].sum()),
        "seconds": every[1:, 2:].tolist(),
        "link": {"every": EVERY, "use": np.round(use, 3).tolist()},
    }


def figures(found: dict[str, Any]) -> dict[str, float]:
    """Returns the figures that the table of the page shows."""
    pushes = np.array(found["seconds"])
    use = np.convolve(found["link"]["use"], np.ones(SMOOTH) / SMOOTH, "valid")
    return {
        "median": float(np.median(pushes)) / found["alone"],
        "percentile_95": float(np.percentile(pushes, 95)) / found["alone"],
        "use": float(np.mean(found["link"]["use"])),
        "idle": float(np.mean(use < IDLE)),
        "ideal": pushes.shape[1] * (found["alone"] + found["compute"]) / found["took"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2 << 20, help="bytes of the weights")
    parser.add_argument("--exchanges", type=int, default=16, help="number of exchanges of each worker")
    parser.add_argument("--load", type=float, default=0.8, help="share of the time in which the link is needed")
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--label", required=True, help="name of the results in the file")
    parser.add_argument("--json", type=Path, default=RESULTS / "store_bursts.json")
    options = parser.parse_args()
    ringcomm.init()
    found = run(options.size, options.exchanges, options.load, options.rate)
    if ringcomm.rank() == 0:
        workers = str(ringcomm.size() - 1)
        shown = "  ".join(f"{name} {value:.2f}" for name, value in figures(found).items())
        print(f"{workers} workers, {options.label}: {shown}, retransmitted {found['retransmitted']}", flush=True)
        document = read(options.json) if options.json.exists() else {"seconds": {}}
        about = {"machine": machine(), "size": options.size, "rate": options.rate, "load": options.load}
        document["seconds"].setdefault(workers, {})[options.label] = found
        write(options.json, document | about)
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
