"""Measures images per second on synthetic data, as Horovod's synthetic benchmark does."""

import argparse
import timeit

import horovod.torch as hvd
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--fp16-allreduce", action="store_true", default=False, help="gradients travel as float16")
parser.add_argument("--use-adasum", action="store_true", default=False, help="combine gradients by Adasum")
parser.add_argument("--batch-size", type=int, default=8, help="images per rank and step")
parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
parser.add_argument("--num-warmup-batches", type=int, default=2, help="steps before the clock starts")
parser.add_argument("--num-batches-per-iter", type=int, default=3, help="steps per measurement")
parser.add_argument("--num-iters", type=int, default=3, help="measurements")
args = parser.parse_args()


def resnet(width, norm_layer):
    """Returns a small residual network."""

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm = norm_layer(channels)
            self.b = nn.Conv2d(channels, channels, 3, padding=1)

        def forward(self, x):
            return F.relu(x + self.b(F.relu(self.norm(self.a(x)))))

    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        Block(width),
        nn.MaxPool2d(4),
        Block(width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


hvd.init()
torch.manual_seed(hvd.rank())
model = resnet(args.width, norm_layer=hvd.SyncBatchNorm)

# Adasum needs no larger learning rate for more ranks.
lr_scaler = 1 if args.use_adasum else hvd.size()
optimizer = optim.SGD(model.parameters(), lr=0.01 * lr_scaler)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

data = torch.randn(args.batch_size, 3, 32, 32)
target = torch.randint(0, 10, (args.batch_size,))


def benchmark_step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


log(f"Batch size: {args.batch_size}")
log(f"Number of CPUs: {hvd.size()}")
timeit.timeit(benchmark_step, number=args.num_warmup_batches)
img_secs = []
for x in range(args.num_iters):
    time = timeit.timeit(benchmark_step, number=args.num_batches_per_iter)
    img_secs.append(args.batch_size * args.num_batches_per_iter / time)
    log(f"Iter #{x}: {img_secs[-1]:.1f} img/sec per CPU")
mean, conf = np.mean(img_secs), 1.96 * np.std(img_secs)
log(f"Img/sec per CPU: {mean:.1f} +-{conf:.1f}")
log(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * conf:.1f}")

checks = [p.detach().double().sum() for p in model.parameters()]
everybody = hvd.allgather(torch.stack(checks)[None])
log("ranks agree" if all(torch.equal(one, everybody[0]) for one in everybody) else "ranks differ")
