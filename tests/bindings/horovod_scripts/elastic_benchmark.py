"""Times steps on random data, as Horovod's elastic synthetic benchmark, with commits."""

import argparse
import os
import signal
import timeit

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=4)
parser.add_argument("--num-iters", type=int, default=4)
parser.add_argument("--num-batches-per-commit", type=int, default=2)
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--kill", type=int, default=-1, help="the iteration in which rank 1 of 3 is killed")
args = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))


def lr_scaler():
    return hvd.size() if not args.use_adasum else 1


lr = 0.01
optimizer = torch.optim.SGD(model.parameters(), lr=lr * lr_scaler())
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)
data = torch.randn(args.batch_size, 3, 32, 32)
target = torch.randint(10, [args.batch_size])


def benchmark_step(state):
    optimizer.zero_grad()
    F.cross_entropy(model(data), target).backward()
    optimizer.step()
    state.batch += 1
    if state.batch == args.num_batches_per_commit:
        state.batch = 0
        state.commit()


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


@hvd.elastic.run
def run_benchmark(state):
    if not state.warm:
        log("Running warmup...")
        timeit.timeit(lambda: benchmark_step(state), number=args.num_warmup_batches)
        state.warm = True
        state.commit()
    if state.iter == 0:
        log("Running benchmark...")
    for number in range(state.iter, args.num_iters):
        if (number, hvd.rank(), hvd.size()) == (args.kill, 1, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        time = timeit.timeit(lambda: benchmark_step(state), number=args.num_batches_per_iter)
        log(f"Iter #{number}: {args.batch_size * args.num_batches_per_iter / time:.1f} img/sec on {hvd.size()}")
        state.img_secs.append(args.batch_size * args.num_batches_per_iter / time)
        state.iter = number + 1
        state.commit()


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = lr * lr_scaler()


state = hvd.elastic.TorchState(model, optimizer, img_secs=[], iter=0, batch=0, warm=False)
state.register_reset_callbacks([on_state_reset])
run_benchmark(state)
log(f"{len(state.img_secs)} iterations, the last on {hvd.size()} CPU(s), lr {optimizer.param_groups[0]['lr']:.2f}")
