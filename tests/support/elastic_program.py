"""A training for elastic jobs: its weights record the job's history, and faults occur on demand.

``elastic_program.py STEPS NAP FAULT ...``, each fault as WORD:GENERATION:RANK:STEP. A fault occurs
after that step and before its commit. The first rank's last line is a JSON of the weights and of
the history: (generation, ranks, steps made before).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np

import ringcomm
from ringcomm import elastic

GENERATION = int(os.environ.get("RINGCOMM_ELASTIC_GENERATION", "1"))


def gradient(step: int, rank: int) -> np.ndarray:
    return np.random.default_rng(1000 * step + rank).integers(0, 1 << 20, 50).astype(np.float64)


def replay(history: list[list[int]], steps: int) -> list[float]:
    """Returns the weights that this history must produce."""
    weights = np.zeros(50)
    ends = [begin for _, _, begin in history[1:]] + [steps]
    for (_, size, begin), end in zip(history, ends, strict=True):
        for step in range(begin, end):
            weights = weights * 0.5 + sum(gradient(step, rank) for rank in range(size))
    return weights.tolist()


def commit_fault(word: str) -> None:
    pid = os.getpid()
    if word == "kill":
        os.kill(pid, signal.SIGKILL)
    elif word == "stop":
        os.kill(pid, signal.SIGSTOP)
    elif word == "raise":
        raise ValueError("no such layer")
    elif word == "leave":
        sys.exit(0)
    elif word == "exit":
        os._exit(9)


def main() -> None:
    steps, nap, *faults = sys.argv[1:]
    ringcomm.init()
    state = elastic.ObjectState(weights=np.zeros(50), step=0, history=[])
    state.register_reset_callbacks([lambda: print(f"reset {ringcomm.size()}\n", end="", flush=True)])

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        state.history.append((GENERATION, ringcomm.size(), state.step))
        if ringcomm.rank() == 0:
            print(f"training {GENERATION} {ringcomm.size()} {state.step}\n", end="", flush=True)
        while state.step < int(steps):
            total = ringcomm.allreduce(gradient(state.step, ringcomm.rank()), op=ringcomm.Sum)
            state.weights = state.weights * 0.5 + total
            state.step += 1
            for fault in faults:
                word, *where = fault.split(":")
                if where == [str(GENERATION), str(ringcomm.rank()), str(state.step)]:
                    commit_fault(word)
            state.commit()
            time.sleep(float(nap))

    train(state)
    if ringcomm.rank() == 0:
        print(json.dumps({"weights": state.weights.tolist(), "history": state.history}), flush=True)


if __name__ == "__main__":
    main()
