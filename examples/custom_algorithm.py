"""A custom all-reduce of two rings in opposite directions: drawn, proved, run at native speed.

    ringrun -np 4 python examples/custom_algorithm.py
    ringcomm show two_rings --file examples/custom_algorithm.py --ranks 4

Half of the blocks are sent to the next rank and half to the previous rank. Neighbours with a
full-duplex link thus use both of its directions. A rank sends the bytes of one ring in the same
number of rounds, with twice the messages.
"""

import argparse

import numpy as np

import ringcomm
from ringcomm.algorithms import receive, reduce, send


def two_rings(rank, size):
    """Returns the rounds of `rank` on 2 `size` blocks: half of them go up, half go down."""
    following, before = (rank + 1) % size, (rank - 1) % size

    def up(i):
        return (rank - i) % size

    def down(i):
        return size + (rank + i) % size

    share_reduce = [
        [send(following, up(i)), send(before, down(i)), reduce(before, up(i + 1)), reduce(following, down(i + 1))]
        for i in range(size - 1)
    ]
    share_only = [
        [send(following, up(i - 1)), send(before, down(i - 1)), receive(before, up(i)), receive(following, down(i))]
        for i in range(size - 1)
    ]
    return share_reduce + share_only


ringcomm.register_algorithm("two_rings", two_rings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FILE.png", help="draw the schedule (needs matplotlib)")
    options = parser.parse_args()

    from mpi4py import MPI

    comm = ringcomm.Communicator(MPI.COMM_WORLD)
    x = np.random.default_rng(comm.rank).integers(-1000, 1000, 100_003).astype(np.float64)
    ours = comm.allreduce(x, op=ringcomm.Sum, algorithm="two_rings")
    ring = comm.allreduce(x, op=ringcomm.Sum, algorithm="ring")
    equal = bool(comm.allreduce(np.array((ours == ring).all()), op=ringcomm.Min))
    if comm.rank == 0:
        from ringcomm._src.algorithms.registry import registered
        from ringcomm._src.cli import picture, show_text

        schedules = registered("allreduce", "two_rings").schedules(comm.size)
        print(show_text.describe(schedules))
        print(f"equal to ring: {'yes' if equal else 'NO'}")
        if options.output:
            picture.draw(schedules, options.output)
            print(f"drawn to {options.output}")
    comm.close()


if __name__ == "__main__":
    main()
