"""Sums NumPy arrays over the ranks, in both of ringcomm's ways.

mpirun -n 4 python examples/numpy_allreduce.py
"""

import numpy as np
from mpi4py import MPI

import ringcomm


def ordered():
    """A communicator of one's own: all ranks make the same calls in the same order, as with MPI. The fastest way."""
    comm = ringcomm.Communicator(MPI.COMM_WORLD)
    x = np.full(5, comm.rank + 1.0, np.float32)
    total = comm.allreduce(x, op=ringcomm.Sum)
    mean = comm.allreduce(x, op=ringcomm.Average, algorithm="ring")
    comm.allreduce(x, op=ringcomm.Max, out=x)  # in place
    if comm.rank == 0:
        print(f"sum {total}, average {mean}, largest {x}")
    comm.close()


def named():
    """Named operations: ranks submit them in any order; ringcomm finds out what is ready everywhere, and fuses it."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    names = [f"gradient {i}" for i in range(4)]
    order = names[rank % 4 :] + names[: rank % 4]  # another order on every rank
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
