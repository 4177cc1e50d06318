"""One rank of one contestant of benchmarks/training.py: trains steps when the driver asks for them.

    python training_worker.py TASK CONTESTANT HOST:PORT

It runs under mpiexec, and connects to the driver's socket. A line of the driver is a number of
steps; the answer is a line of JSON: seconds, CPU seconds, page faults, peak memory, bytes passed
between ranks, and the loss. While other contestants run, it blocks on the socket.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import pin
from torch import nn
from training_frameworks import CONTESTANTS as FRAMEWORKS
from training_models import TASKS, Task, step_of

Step = Callable[[], float]
LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def alone(task: Task, world: Any) -> Step:
    model = task.model()
    return step_of(task, model, task.optimizer(model), world.rank)


def ringcomm_optimizer(task: Task, world: Any) -> Step:
    import ringcomm.torch as hvd

    hvd.init()
    model = task.model()
    optimizer = hvd.DistributedOptimizer(task.optimizer(model), model.named_parameters())
    return step_of(task, model, optimizer, world.rank)


def horovod_algorithm(task: Task, world: Any) -> Step:
    """Horovod's way: an operation per gradient, fused in a buffer by the engine, reduced by a ring."""
    import ringcomm.torch as hvd

    hvd.init()
    model = task.model()
    optimizer, started = task.optimizer(model), []

    def reduce(name: str, parameter: nn.Parameter) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            started.append((parameter, hvd.sparse_allreduce_async(gradient, name=name, op=hvd.Average)))
        else:
            started.append((None, hvd.allreduce_async_(gradient, name=name, op=hvd.Average, algorithm="ring")))

    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: reduce(name, p))
    take = optimizer.step

    def step(*args: Any) -> Any:
        for parameter, handle in started:
            result = hvd.synchronize(handle)
            if parameter is not None:
                parameter.grad = result
        started.clear()
        return take(*args)

    optimizer.step = step  # type: ignore[method-assign]
    return step_of(task, model, optimizer, world.rank)


def under_ddp(backend: str, hook: str = "", **options: Any) -> Callable[[Task, Any], Step]:
    def make(task: Task, world: Any) -> Step:
        import torch.distributed as dist

        if backend == "gloo":
            from peers import start_gloo

            start_gloo(world)
        else:
            import ringcomm.torch.distributed

            dist.init_process_group(backend)
        model = nn.parallel.DistributedDataParallel(task.model(), **options)
        if hook:
            model.register_comm_hook(None, ringcomm.torch.distributed.compression_hook(hook))
        return step_of(task, model, task.optimizer(model), world.rank)

    return make


CONTESTANTS: dict[str, Callable[[Task, Any], Step]] = {
    "alone": alone,
    "ringcomm": ringcomm_optimizer,
    "ringcomm under DDP": under_ddp("ringcomm"),
    "ringcomm under DDP, hook": under_ddp("ringcomm", hook="none"),
    "DDP, Gloo": under_ddp("gloo"),
    "DDP, Gloo, bucket views": under_ddp("gloo", gradient_as_bucket_view=True),
    "Horovod's algorithm": horovod_algorithm,
}


def bytes_passed(rank: int) -> int:
    """Returns the bytes that ringcomm has moved, and on rank 0 also those of the loopback network."""
    moved = int(LOOPBACK.read_text()) if rank == 0 else 0
    ringcomm = sys.modules.get("ringcomm")
    if ringcomm is not None:
        total = ringcomm.stats().total
        moved += total.bytes_sent + total.memory_bytes
    return moved


def measured(step: Step, steps: int, rank: int) -> dict[str, Any]:
    moved = bytes_passed(rank)
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    losses = [step() for _ in range(steps)]
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds / steps,
        "cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / steps,
        "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "peak": after.ru_maxrss * 1024,
        "bytes": (bytes_passed(rank) - moved) / steps,
        "loss": losses[-1],
    }


def main(task: str, contestant: str, address: str) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    pin(world.rank)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    step = FRAMEWORKS[task][contestant](world) if task in FRAMEWORKS else CONTESTANTS[contestant](TASKS[task], world)
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as file:
        print(world.rank, file=file, flush=True)
        for line in file:
            print(json.dumps(measured(step, int(line), world.rank)), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
