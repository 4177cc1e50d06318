"""Pipeline parallelism: each rank has some layers, and works on micro-batches of each batch.

    ringrun -np 2 python examples/parallel/pipeline.py --schedule zb     # gpipe, 1f1b, interleaved

gpipe (Huang et al., arXiv:1811.06965): all micro-batches forward, then all backward; a rank keeps
the activations of all. 1f1b (PipeDream's: Narayanan et al., arXiv:1806.03377): alternates forward
and backward as soon as possible; a rank keeps the activations of at most one micro-batch per stage.
interleaved: each rank has several non-adjacent stages, so that the pipeline fills sooner. zb (Qi et
al., arXiv:2401.10241): divides backward into the gradients of inputs and those of weights; the
latter fill the remaining gaps.

The bubble is the share of time in which a rank is idle: (stages - 1) / (micro-batches + stages - 1)
for gpipe and 1f1b if all stages take the same time. The program prints the measured bubble of the
last of four steps: 1 - busy / total. --record FILE.json runs 40 more steps, and adds the one with
the median bubble to the file: the computations of each rank and, from ringcomm's timeline, its
waits for messages. bubble.py draws the file. Layers should then be large, so that computation takes
most of the time: WIDTH=1024 BATCH=512 in the environment.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from bubble import record, waits
from common import alone, batch, compare, model, start
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

from ringcomm.torch.distributed import start_timeline, stop_timeline

SCHEDULES = {
    "gpipe": (ScheduleGPipe, 1),
    "1f1b": (Schedule1F1B, 1),
    "interleaved": (ScheduleInterleaved1F1B, 2),
    "zb": (ScheduleInterleavedZeroBubble, 2),
}  # second: the number of stages on each rank
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
parser.add_argument("--micro-batches", type=int, default=8)
parser.add_argument("--record", metavar="FILE.json", type=Path, help="add the step with the median bubble to the file")
options = parser.parse_args()

rank, size = start()
kind, each = SCHEDULES[options.schedule]
whole, device = model(), torch.device("cpu")
numbers = [rank + size * turn for turn in range(each)]  # the numbers of this rank's stages
count = size * each
parts = [whole[len(whole) * n // count : len(whole) * (n + 1) // count] for n in numbers]
stages = [PipelineStage(part, n, count, device) for part, n in zip(parts, numbers, strict=True)]
schedule = kind(stages if each > 1 else stages[0], options.micro_batches, loss_fn=nn.functional.mse_loss)

computed = []  # (kind, micro-batch, begin, end) of computations, in seconds of the timeline's clock


def watched(call, what):
    """Returns the call with its begin and end recorded."""

    def timed(number, *args, **kwargs):
        begin = time.monotonic()
        try:
            return call(number, *args, **kwargs)
        finally:
            computed.append((what, number, begin, time.monotonic()))

    return timed


for stage in stages:
    for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
        setattr(stage, name, watched(getattr(stage, name), name.split("_")[0]))

optimizer = torch.optim.SGD([one for part in parts for one in part.parameters()], lr=0.1)
for step in range(4):
    x, y = batch(step)
    optimizer.zero_grad()
    computed, begin = [], time.monotonic()
    schedule.step(*([x] if rank == 0 else []), target=y)
    lasted = time.monotonic() - begin
    optimizer.step()
busy = sum(end - begin for *_, begin, end in computed)
print(f"rank {rank}: stages {numbers}, nothing to do in {1 - busy / lasted:.0%} of the time")
if options.record:
    name, steps = f"{options.record}.{{rank}}", []
    timeline = Path(name.format(rank=rank))
    for _ in range(40):
        start_timeline(name)
        dist.barrier()
        computed = []
        schedule.step(*([x] if rank == 0 else []), target=y)
        stop_timeline()
        steps.append([*computed, *waits(timeline)])
    timeline.unlink()
    record(options.record, options.schedule, options.micro_batches, count, steps)
expected = dict(alone().named_parameters())
names = {id(one): name for name, one in whole.named_parameters()}
got = {names[id(one)]: one.detach() for part in parts for one in part.parameters()}
compare(got, {name: one.detach() for name, one in expected.items()})
