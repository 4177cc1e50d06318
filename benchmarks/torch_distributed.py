"""Compares torch.distributed on ringcomm and Gloo: operations, messages, training steps.

    python benchmarks/torch_distributed.py --python .venv/bin/python --python .venv-openmpi/bin/python --json FILE

Two ranks of one host, each pinned. Two process groups of the same ranks take turns in random order
within one run. Before each call on 16 MB, inputs are rewritten and outputs read, as programs do;
this is not timed. For steps (8 x Linear(2048), batch 32: 134 MB of gradients; one thread per rank)
a third contestant has no group: a step without communication. Two more show limits of
DistributedDataParallel: itself, with an empty hook, and ringcomm.torch.DistributedOptimizer, which
copies no gradient. For pipelines, with five steps per turn, one more ("itself") sends only the
first element of each message, which is the lower limit. Ratios have a 95 % bootstrap interval.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jobs
import measure

from ringcomm._src.cli import measured

LAYERS, WIDTH, BATCH = 8, 2048, 32
UNCOUNTED = 12  # turns of warm-up
STEPS = 5  # consecutive steps of a pipeline: as in training, caches are not filled by another contestant
OURS, GLOO, ALONE = "ringcomm", "gloo", "alone"
ITSELF, OPTIMIZER = "itself", "optimizer"  # with an empty hook; ringcomm.torch.DistributedOptimizer


class Timed(NamedTuple):
    """A call, the number of calls timed together, and an untimed preparation before them."""

    call: Callable[[], Any]
    calls: int = 1
    before: Callable[[], Any] = lambda: None


# ---- on the ranks ----------------------------------------------------------------------------------------------------
def operations(group: Any) -> dict[str, Timed]:
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    one, big = torch.ones(1), torch.ones(4 << 20)
    part, parts = torch.ones((4 << 20) // size), [torch.empty((4 << 20) // size) for _ in range(size)]
    message = torch.ones(1 << 18)

    def ping_pong() -> None:
        if rank == 0:
            dist.send(message, 1, group=group)
            dist.recv(message, 1, group=group)
        elif rank == 1:
            dist.recv(message, 0, group=group)
            dist.send(message, 0, group=group)

    def used() -> None:
        """Writes inputs and reads outputs."""
        for one in (big, part, *parts):
            one.sum()
            one.fill_(1)

    return {
        "all_reduce of 4 B": Timed(partial(dist.all_reduce, one, op=dist.ReduceOp.MAX, group=group), 500),
        "all_reduce of 16 MB": Timed(partial(dist.all_reduce, big, op=dist.ReduceOp.MAX, group=group), 1, used),
        "all_gather of 16 MB into a list": Timed(partial(dist.all_gather, parts, part, group=group), 1, used),
        "all_gather_into_tensor of 16 MB": Timed(partial(dist.all_gather_into_tensor, big, part, group=group), 1, used),
        "reduce_scatter_tensor of 16 MB": Timed(partial(dist.reduce_scatter_tensor, part, big, group=group), 1, used),
        "round trip of 1 MB": Timed(ping_pong, 10),
    }


def model() -> Any:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    return torch.nn.Sequential(*[one for layer in layers for one in (layer, torch.nn.ReLU())])


def step_of(net: Any, wrap: Callable[..., Any] = lambda optimizer, **_: optimizer) -> Callable[[], None]:
    import torch

    x = torch.randn(BATCH, WIDTH)
    optimizer = wrap(torch.optim.SGD(net.parameters(), lr=1e-4), named_parameters=net.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def nothing(_state, bucket):  # torch reads annotations
    import torch

    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def steps(groups: dict[str, Any]) -> dict[str, dict[str, Timed]]:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import ringcomm.torch as hvd

    hvd.init()
    itself = DistributedDataParallel(model(), process_group=groups[OURS], gradient_as_bucket_view=True)
    itself.register_comm_hook(None, nothing)
    ddp = {ALONE: Timed(step_of(model()))}
    ddp |= {ITSELF: Timed(step_of(itself)), OPTIMIZER: Timed(step_of(model(), hvd.DistributedOptimizer))}
    fsdp = {ALONE: ddp[ALONE]}
    for name, group in groups.items():
        wrapped = DistributedDataParallel(model(), process_group=group, gradient_as_bucket_view=True)
        ddp[name] = Timed(step_of(wrapped))
        net, mesh = model(), DeviceMesh.from_group(group, "cpu")
        for layer in list(net)[::2]:
            fully_shard(layer, mesh=mesh)
        fsdp[name] = Timed(step_of(fully_shard(net, mesh=mesh)))
    return {"step of DistributedDataParallel": ddp, "step of fully_shard": fsdp}


def pipeline(group: Any, layer: Callable[[], Any], rows: int, loss: Callable[..., Any]) -> Callable[[], None]:
    """Returns a 1F1B step of eight micro-batches of `rows`, each stage one layer of WIDTH."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(0)
    stage = PipelineStage(layer(), rank, size, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, 8, loss_fn=loss)
    x, y = torch.randn(8 * rows, WIDTH), torch.randn(8 * rows, WIDTH)

    def step() -> None:
        schedule.step(*([x] if rank == 0 else []), target=y)

    return step


def of_one_element(step: Callable[[], None]) -> Callable[[], None]:
    """Returns a pipeline's step that sends one element per message: a lower time limit."""
    from unittest import mock

    from torch.distributed.pipelining import schedules

    run = schedules._batch_p2p

    def short(messages: list[Any], desc: str | None = None) -> Any:
        for one in messages:
            one.tensor = one.tensor.detach().flatten()[:1]
        return run(messages, desc)

    def short_step() -> None:
        with mock.patch.object(schedules, "_batch_p2p", short):
            step()

    return short_step


def pipelines(groups: dict[str, Any]) -> dict[str, dict[str, Timed]]:
    """Returns pipelines whose stages compute little, more, or much relative to their messages."""
    import torch

    class Product(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = torch.nn.Parameter(torch.ones(()))

        def forward(self, x: Any) -> Any:
            return x * self.by

    class Sum(Product):
        def forward(self, x: Any) -> Any:
            return x + self.by

    squares, mean = torch.nn.functional.mse_loss, lambda out, _target: out.mean()
    kinds: dict[str, Any] = {
        "products": (Product, 256, squares),
        "sums": (Sum, 256, mean),
        "Linear": (partial(torch.nn.Linear, WIDTH, WIDTH), 64, squares),
    }
    found = {}
    for kind, how in kinds.items():
        contestants = {name: Timed(pipeline(group, *how), STEPS) for name, group in groups.items()}
        contestants[ITSELF] = Timed(of_one_element(pipeline(groups[OURS], *how)), STEPS)
        found[f"step of a 1F1B pipeline of {kind}"] = contestants
    return found


def timing(world: Any, timed: Timed, _turn: int) -> float:
    timed.before()
    world.Barrier()
    begin = time.perf_counter()
    for _ in range(timed.calls):
        timed.call()
    return (time.perf_counter() - begin) / timed.calls


def worker(task: dict[str, Any]) -> None:
    import warnings

    from mpi4py import MPI

    world = MPI.COMM_WORLD
    measure.pin(world.rank)
    import torch
    import torch.distributed as dist

    import ringcomm.torch.distributed

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(ringcomm.torch.distributed.NAME)
    groups = {OURS: dist.group.WORLD, GLOO: dist.new_group(backend=GLOO)}
    cases: dict[str, dict[str, Timed]] = {}
    for name, group in groups.items():
        for what, call in operations(group).items():
            cases.setdefault(what, {})[name] = call
    cases |= pipelines(groups) | steps(groups)
    rows = []
    for what, contestants in cases.items():
        chosen = {name: partial(timing, world, one) for name, one in contestants.items()}
        seconds = measured.take_turns(world, chosen, task["repeat"], len(what), uncounted=UNCOUNTED)
        rows.append({"what": what, "seconds": seconds})
        if world.rank == 0:
            print(line(rows[-1]), flush=True)
    if world.rank == 0:
        jobs.give_back(task, {"machine": measure.machine(), "torch": torch.__version__, "rows": rows})
    dist.destroy_process_group()


# ---- outside the ranks -----------------------------------------------------------------------------------------------
def added(of: Callable[[str], float], who: str = OURS) -> float:
    """Returns the time that a step takes longer than alone, as a share of the time that Gloo adds."""
    return (of(who) - of(ALONE)) / (of(GLOO) - of(ALONE))


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    middles = "  ".join(f"{name} {statistics.median(times) * 1e6:10.1f} us" for name, times in seconds.items())
    told = "{:.2f} times Gloo's speed [{:.2f}, {:.2f}]".format(*measure.ratio(seconds[GLOO], seconds[OURS]))
    for who in seconds.keys() - {GLOO, ALONE} if ALONE in seconds else ():
        share = "{:.2f} [{:.2f}, {:.2f}]".format(*measured.interval(partial(added, who=who), seconds))
        told += f"\n  {who} adds {share} of what Gloo adds"
    return f"{row['what']:<32} {middles}  {told}"


def main() -> None:
    parser = jobs.make_parser(__doc__, "0")
    parser.add_argument("--repeat", type=int, default=25)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    options.ranks = "2"
    jobs.for_each_mpi(options, __file__, {"repeat": options.repeat})


if __name__ == "__main__":
    main()
