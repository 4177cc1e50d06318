"""Measures an elastic job's time from a rank's death to the next step, and the speed of commits.

    python benchmarks/elastic.py --output benchmarks/results/elastic_mpich.json
    python benchmarks/elastic.py --hosts 3 ...       # hosts as network namespaces: one is cut off, one crashes (root)

A recovery begins just before the fault and ends with the first later step that the ranks voted for,
by one clock. Commits save 8 x Linear(2048) with Adam, 403 MB; copies of equally many bytes within
one process take turns with them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cluster
from measure import machine, write

STEPS, NAP = 10_000, 0.01


# ---- what ranks run --------------------------------------------------------------------------------------------------
def train(folder: str) -> None:
    """Trains; writes the time of each commit to a file."""
    import torch

    import ringcomm.torch as hvd

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    generation = int(os.environ["RINGCOMM_ELASTIC_GENERATION"])

    @hvd.elastic.run
    def steps(state: Any) -> None:
        Path(folder, f"pid.{generation}.{hvd.rank()}").write_text(str(os.getpid()))
        while state.step < STEPS:
            optimizer.zero_grad()
            model(torch.randn(16, 64)).square().mean().backward()
            optimizer.step()
            state.step += 1
            state.commit()
            if hvd.rank() == 0:
                with open(Path(folder, "steps"), "a") as file:
                    file.write(json.dumps([generation, hvd.size(), state.step, time.time()]) + "\n")
            time.sleep(NAP)

    steps(state)


def commits(path: str) -> None:
    """Measures seconds of commits, of votes, and of copies of the same number of bytes."""
    import numpy as np
    import torch

    import ringcomm.torch as hvd

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 2048)).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model, optimizer, step=0)

    @hvd.elastic.run
    def measure(state: Any) -> None:
        nbytes = 3 * sum(parameter.numel() for parameter in model.parameters()) * 4
        source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
        rows: dict[str, list[float]] = {"commit": [], "copy": [], "vote": []}
        for turn in range(18):
            for name, act in (
                ("commit", state.commit),
                ("copy", lambda: np.copyto(target, source)),
                ("vote", lambda: [state.check_host_updates() for _ in range(1000)]),
            ):
                hvd.barrier()
                since = time.perf_counter()
                act()
                if turn > 2:  # by then all pages are mapped
                    rows[name].append(time.perf_counter() - since)
        if hvd.rank() == 0:
            rows["vote"] = [seconds / 1000 for seconds in rows["vote"]]
            Path(path).write_text(json.dumps({"nbytes": nbytes, **rows}))

    measure(state)


# ---- measuring -------------------------------------------------------------------------------------------------------
def steps_in(folder: Path) -> list[tuple[int, int, int, float]]:
    with contextlib.suppress(FileNotFoundError):
        return [tuple(json.loads(line)) for line in (folder / "steps").read_text().splitlines(True) if line[-1] == "\n"]
    return []


def wait_for_step(folder: Path, after: float, size: int | None = None, limit: float = 60) -> float:
    """Returns the time of the first step made after that moment."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        for _, ranks, _, when in steps_in(folder):
            if when > after and size in (None, ranks):
                return when
        time.sleep(0.02)
    raise RuntimeError(f"no step within {limit} s: {steps_in(folder)[-3:]}")


class Job:
    """A job that runs until the context ends."""

    def __init__(self, words: list[str], enter: Any = lambda line: line, environment: dict[str, str] | None = None):
        self._words, self._enter, self._environment = words, enter, environment
        self.first_step = 0.0  # seconds from the command to the first step

    def __enter__(self) -> Path:
        self._scope = tempfile.TemporaryDirectory(prefix="ringcomm-elastic-")
        self.folder = Path(self._scope.name)
        words = [sys.executable, "-m", "ringcomm", "run", *self._words]
        since = time.time()
        line = self._enter([*words, sys.executable, os.path.abspath(__file__), "train", str(self.folder)])
        self._process = subprocess.Popen(line, env=self._environment, stdout=subprocess.DEVNULL)
        self.first_step = wait_for_step(self.folder, 0, limit=120) - since
        time.sleep(3)  # time for background loading
        return self.folder

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._scope.cleanup()


def kill_one(words: list[str]) -> tuple[float, float]:
    """Returns seconds from the command to the first step, and from the death to the next step."""
    job = Job(["-np", "3", "--min-np", "2", *words])
    with job as folder:
        pid = int((folder / "pid.1.1").read_text())
        since = time.time()
        os.kill(pid, signal.SIGKILL)
        return job.first_step, wait_for_step(folder, since, size=2) - since


def host_lost(how: str, hosts: int) -> dict[str, float]:
    """Measures the loss of a host: disconnects it, or kills all its processes.

    Returns the seconds to the next step and, after a disconnection, from the reconnection to the
    first step with the host.
    """
    kind = cluster.mpi_kind(str(Path(sys.executable).with_name("mpiexec")))
    with cluster.Cluster(hosts) as lab:
        words = ["-H", ",".join(f"{address}:1" for address in lab.addresses), "--min-np", "2"]
        words += ["--ssh-command", str(lab.agent)]
        environment = dict(os.environ)
        if kind == "mpich":
            environment |= {"FI_PROVIDER": "tcp", "MPIR_CVAR_CH4_NETMOD": "ofi"}
            words.append(f"--mpi-args=-iface {cluster.BRIDGE}")
        else:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            words += ["--network-interfaces", f"{cluster.NETWORK}.0/24", "--tcp"]
        with Job(words, lab.switch.enter, environment) as folder:
            since = time.time()
            lab.set_link(hosts, up=False)
            if how == "crash":
                lab.crash(hosts)
            row = {"next_step": wait_for_step(folder, since + 0.5, size=hosts - 1) - since}
            if how == "cut":
                since = time.time()
                lab.set_link(hosts, up=True)
                row["back"] = wait_for_step(folder, since, size=hosts) - since
            return row


def commit_speed(ranks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows")
        words = [sys.executable, "-m", "ringcomm", "run", "-np", str(ranks), "--min-np", str(ranks)]
        subprocess.run([*words, sys.executable, os.path.abspath(__file__), "commits", str(path)], check=True)
        rows = json.loads(path.read_text())
    ratio = statistics.median(copy / commit for copy, commit in zip(rows["copy"], rows["commit"], strict=True))
    return {
        "ranks": ranks,
        "nbytes": rows["nbytes"],
        "commit_gbs": rows["nbytes"] / statistics.median(rows["commit"]) / 1e9,
        "of_a_copy": ratio,
        "vote_us": statistics.median(rows["vote"]) * 1e6,
    }


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
        return
    if sys.argv[1:2] == ["commits"]:
        commits(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=0, help="also lose one of so many hosts (root)")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    for name, words in (("kill", []), ("kill_cold", ["--cold-start"])):
        starts, result[name] = zip(*(kill_one(words) for _ in range(options.times)), strict=True)
        result[f"start_before_{name}"] = starts
        for what in (name, f"start_before_{name}"):
            print(f"{what}: median {statistics.median(result[what]):.2f} s of {sorted(result[what])}", flush=True)
    result["commits"] = [commit_speed(ranks) for ranks in (1, 2)]
    print(json.dumps(result["commits"], indent=1), flush=True)
    for how in ("cut", "crash") if options.hosts else ():
        result[how] = [host_lost(how, options.hosts) for _ in range(max(1, options.times // 2))]
        print(how, result[how], flush=True)
    if options.output:
        write(options.output, result)


if __name__ == "__main__":
    main()
