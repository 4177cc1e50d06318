"""Broadcasts and sums arrays of GPUs: CuPy's if CuPy is installed, else ringcomm's.

    ringrun -np 4 python examples/cupy_allreduce.py

Each rank uses one GPU of its host, by its local rank; several ranks may share one. Without a GPU,
the program prints what is missing and ends with status 0.
"""

import numpy as np

import ringcomm
from ringcomm._src.arrays.device import devices

try:
    import cupy
except ImportError:
    cupy = None


def on_gpu(values):
    """Returns these values in the memory of this rank's GPU."""
    x = ringcomm.empty(np.shape(values), np.asarray(values).dtype, device="cuda")
    x.set(np.asarray(values))  # CuPy's arrays and ringcomm's both have set() and get()
    return x


def main():
    ringcomm.init()
    rank, size, comm = ringcomm.rank(), ringcomm.size(), ringcomm.communicator()
    _, missing = devices.count_or_reason()
    everybody = comm.allgather(np.array([not missing]))
    if not everybody.all():
        if rank == 0:
            without = ", ".join(str(r) for r in np.flatnonzero(~everybody))
            print(f"no GPU arrays without a GPU: rank {without} of {size} has none ({missing or 'rank 0 has one'})")
            print("this example needs NVIDIA's driver (libcuda.so.1) and a GPU on every host; nothing else")
        return

    if cupy is not None:
        cupy.cuda.Device(devices.of_name("cuda", comm.local_rank)).use()
    weights = on_gpu(np.arange(4.0) if rank == 0 else np.zeros(4))
    weights = ringcomm.broadcast(weights, root_rank=0, name="weights")

    # Runs after the current work of the stream, and before its later work. The host does not wait.
    total = ringcomm.allreduce(on_gpu(np.full(4, rank + 1.0)), op=ringcomm.Sum, name="total")

    # Reduces several arrays together, of different dtypes, on the host and on GPUs.
    mixed = [on_gpu(np.full(3, rank, np.float32)), np.full(2, rank, np.int64), on_gpu(np.float16([1, 2]))]
    grouped = ringcomm.grouped_allreduce(mixed, op=ringcomm.Max, name="mixed")

    assert (weights.get() == np.arange(4)).all() and (total.get() == size * (size + 1) / 2).all()
    assert (grouped[0].get() == size - 1).all() and (grouped[1] == size - 1).all()
    if rank == 0:
        kind = f"CuPy {cupy.__version__}" if cupy is not None else "ringcomm.DeviceArray (CuPy is not installed)"
        print(f"{size} ranks, arrays of {kind}")
        print(f"weights {weights.get()}, total {total.get()}, largest {grouped[0].get()}")
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
