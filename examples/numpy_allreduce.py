"""Sums NumPy arrays over the ranks, by a communicator and by named operations.

ringrun -np 4 python examples/numpy_allreduce.py
"""

import numpy as np
from mpi4py import MPI

import ringcomm


def ordered():
    """Uses a communicator, the fastest interface: ranks make the same calls in one order."""
    comm = ringcomm.Communicator(MPI.COMM_WORLD)
    x = np.full(5, comm.rank + 1.0, np.float32)
    total = comm.allreduce(x, op=ringcomm.Sum)
    mean = comm.allreduce(x, op=ringcomm.Average, algorithm="ring")
    comm.allreduce(x, op=ringcomm.Max, out=x)  # in place
    if comm.rank == 0:
        print(f"sum {total}, average {mean}, largest {x}")
    comm.close()


def named():
    """Uses named operations: ranks submit them in any order, and ringcomm may fuse them."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    names = [f"gradient {i}" for i in range(4)]
    order = names[rank % 4 :] + names[: rank % 4]  # a different order on every rank
    handles = {
        name: ringcomm.allreduce_async(np.full(3, float(names.index(name))), op=ringcomm.Sum, name=name)
        for name in order
    }
    results = {name: ringcomm.synchronize(handles[name]) for name in names}
    for name in names:
        assert (results[name] == names.index(name) * size).all()
    if rank == 0:
        print("; ".join(f"{name}: {results[name][0]:g}" for name in names))
    ringcomm.shutdown()


if __name__ == "__main__":
    ordered()
    named()
