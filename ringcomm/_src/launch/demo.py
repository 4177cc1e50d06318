"""Defines `ringcomm.demo`: trains digits in one process, then on ranks, and compares both."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MARK = "ringcomm-demo "  # a line of the worker with it holds JSON: progress, or the result
WORKER = "ringcomm._src.cli.demo_worker"
BAR = 30  # characters
NEXT = (
    ("use it in your script", "docs/which-way-in.md; from Horovod: docs/migrating-from-horovod.md"),
    ("several hosts, Slurm", "docs/running.md"),
    ("what is installed, what to fix", "ringcomm info"),
    ("ringcomm against MPI, timed here", "ringrun -np 2 ringcomm bench allreduce"),
    ("how an all-reduce works", "ringcomm show ring --ranks 4 --values"),
)


def demo(ranks: int = 2, epochs: int = 6) -> None:
    """Trains a small CNN on digits with PyTorch: in one process, then on ranks of this host.

    Both runs train on the same samples, one thread a process. Prints the accuracies, the times of
    training without the start of the processes, and their ratio. The data are scikit-learn's
    handwritten digits if it is installed, else synthetic ones.

    Parameters
    ----------
    ranks : int
        Number of ranks, at least 1. More ranks than cores share cores, without a speed-up.
    epochs : int
        Passes over the 1437 images, at least 1.

    Raises
    ------
    ImportError
        PyTorch is not installed.
    RuntimeError
        The job failed. Its output is printed.
    ValueError
        `ranks` or `epochs` is less than 1.

    Examples
    --------
    This example starts a job, so call it outside of other jobs::

        ringcomm.demo()
    """
    from ringcomm._src.base.installed import framework_version

    if ranks < 1 or epochs < 1:
        raise ValueError(f"ranks and epochs must be at least 1, not {ranks} and {epochs}")
    if framework_version("torch") is None:
        raise ImportError('the demo needs PyTorch: pip install "ringcomm[mpich,torch]"')
    several = f"{ranks} rank{'s' * (ranks != 1)}"
    print(f"A small CNN learns digits: {epochs} epochs, first in one process, then on {several}.", flush=True)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    alone, together = _results(ranks, epochs, {"alone": "1 process", "ranks": several})
    print("\n".join(_summary(several, alone, together, epochs)))
    if ranks > cores:
        print(f"{several} share {cores} core{'s' * (cores != 1)}: only more cores make training faster")
    if load > cores / 2:
        print(f"the load of the minute before was {load:.1f} on {cores} cores, so the times are uncertain")
    print("\n".join(["", "Next:", *(f"  {what:<34} {where}" for what, where in NEXT)]), flush=True)


def _results(ranks: int, epochs: int, labels: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starts the ranks, shows their progress and returns the results of both runs."""
    import subprocess  # here, because `import ringcomm` imports this module

    other: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    command = [sys.executable, "-m", "ringcomm", "run", "-np", str(ranks), sys.executable, "-m", WORKER]
    pipe: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*command, "--epochs", str(epochs)], text=True, errors="replace", **pipe) as process:
        assert process.stdout is not None
        for line in process.stdout:
            _, mark, text = line.partition(MARK)
            if not mark:
                other.append(line)
                continue
            message = json.loads(text)
            if "result" in message:
                found[message["result"]] = message
            else:
                _show(labels[message["run"]], message["step"], message["steps"], message["loss"])
    if process.returncode or len(found) < 2:
        print("".join(other), end="", file=sys.stderr, flush=True)
        raise RuntimeError(f"the demo's job failed with status {process.returncode}; its output is above")
    return found["alone"], found["ranks"]


def _show(label: str, step: int, steps: int, loss: float) -> None:
    """Draws the progress bar; where a line cannot be overwritten, only the complete one."""
    rewrites = sys.stdout.isatty() or "ipykernel" in sys.modules
    if rewrites or step == steps:
        text = bar_text(label, step, steps, loss)
        print(f"\r{text}" if rewrites else text, end="\n" if step == steps else "", flush=True)


def bar_text(label: str, step: int, steps: int, loss: float) -> str:
    done = BAR * step // steps
    return f"{label:<9} {'█' * done}{'░' * (BAR - done)} step {step}/{steps}, loss {loss:.3f} "


def _summary(several: str, alone: dict[str, Any], together: dict[str, Any], epochs: int) -> list[str]:
    lines = ["", f"Data: {alone['images']} images of {alone['data']}", ""]
    lines.append(f"{'':<10} {'test accuracy':>13} {'time':>9} {'samples/s':>10}")
    for label, result in (("1 process", alone), (several, together)):
        rate = alone["images"] * epochs / result["seconds"]
        lines.append(f"{label:<10} {result['accuracy']:>13.1%} {result['seconds']:>7.2f} s {rate:>10.0f}")
    ratio = alone["seconds"] / together["seconds"]
    return [*lines, "", f"Speed-up: {ratio:.2f} (same samples, one thread per process, without the processes' start)"]
