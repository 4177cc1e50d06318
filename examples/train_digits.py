"""Trains a small CNN on scikit-learn's handwritten digits, on all ranks of the job.

    ringrun -np 2 python examples/train_digits.py                  # --device cuda: on GPUs

Every global batch is the same for any number of ranks; each rank computes its shard of it, and
gradients are summed. Training therefore gives the result of one process, up to the rounding of sums
(compare with --dtype float64 --save).
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import ringcomm.torch as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="global batch: all ranks together")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many steps")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: GPU of the local rank")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FILE.npz", help="write final weights, loss of each step and accuracy")
    parser.add_argument("--output", default="output", help="folder for the loss plot; '' for none")
    return parser.parse_args()


def device_of(options):
    """Returns this rank's GPU, if there is one for it; ranks of one host may share it."""
    if options.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        print(f"rank {hvd.rank()}: torch sees no CUDA device here: training on the CPU", file=sys.stderr, flush=True)
        return torch.device("cpu")
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def load_data(dtype, device):
    """Returns 8 x 8 images scaled to [0, 1]; every fifth is for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16, dtype=dtype)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[::5], order[torch.arange(len(order)) % 5 != 0]
    return [part.to(device) for part in (images[train], labels[train], images[test], labels[test])]


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def shard(items):
    """Returns this rank's shard of a global batch; sums allow shards that differ by one item."""
    return torch.tensor_split(items, hvd.size())[hvd.rank()]


def batches(count, options):
    """Yields the global batches of the run, identical on every rank and for any number of ranks."""
    generator = torch.Generator().manual_seed(options.seed)
    step = 0
    for epoch in range(options.epochs):
        for batch in torch.randperm(count, generator=generator).split(options.batch):
            if step == options.steps:
                return
            yield epoch, batch
            step += 1


def progress_bar(total):
    """Returns a tqdm bar on rank 0 if stderr is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="step", disable=None if hvd.rank() == 0 else True)


def train(model, images, labels, options):
    """Returns the mean loss of each step (over the global batch) and the samples per second."""
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    plan = list(batches(len(labels), options))
    bar = progress_bar(len(plan))
    losses, samples, begin = [], 0, time.perf_counter()
    for epoch, batch in plan:
        mine = shard(batch)
        optimizer.zero_grad()
        # Divides the sum over the shard by the global batch: summed over ranks it is the gradient
        # of the global mean.
        loss = F.cross_entropy(model(images[mine]), labels[mine], reduction="sum") / len(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        samples += len(batch)
        if bar is not None:
            bar.set_postfix(epoch=epoch, loss=f"{loss.item() * len(batch) / max(1, len(mine)):.4f}", refresh=False)
            bar.update()
    seconds = time.perf_counter() - begin
    if bar is not None:
        bar.close()
    mean = hvd.allreduce(torch.stack(losses), op=hvd.Sum, name="losses") if losses else torch.zeros(0)
    return mean.cpu().numpy(), samples / seconds


def test_accuracy(model, images, labels):
    mine = shard(torch.arange(len(labels)))
    with torch.no_grad():
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(labels)


def weight_hashes(model):
    """Returns the sha256 of every rank's weights."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return hvd.allgather_object(digest.hexdigest(), name="hash")


def plot_losses(losses, accuracy, folder):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.semilogy(np.arange(1, len(losses) + 1), losses, linewidth=0.8, label="each step")
    window = min(20, len(losses))
    axes.semilogy(
        np.arange(window, len(losses) + 1),
        np.convolve(losses, np.ones(window) / window, "valid"),
        label=f"mean of {window}",
    )
    axes.set(xlabel="step", ylabel="training loss", title=f"digits, {hvd.size()} ranks: test accuracy {accuracy:.3f}")
    axes.legend()
    path = Path(folder) / "train_digits.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def main():
    options = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)  # small layers lose more by waiting for threads than they gain
    torch.manual_seed(options.seed + hvd.rank())  # different weights on each rank, until rank 0's are broadcast
    dtype, device = getattr(torch, options.dtype), device_of(options)
    train_images, train_labels, test_images, test_labels = load_data(dtype, device)
    model = make_model().to(device, dtype)
    losses, speed = train(model, train_images, train_labels, options)
    accuracy = test_accuracy(model, test_images, test_labels)
    hashes = weight_hashes(model)
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {len(losses)} steps of {options.batch}, {speed:.0f} samples/s", flush=True)
        if len(losses):
            print(f"training loss: {losses[0]:.4f} at first, {losses[-20:].mean():.4f} at last")
        if options.output and len(losses) and (path := plot_losses(losses, accuracy, options.output)):
            print(f"loss plot: {path}")
        if options.save:
            weights = {name: value.detach().cpu().numpy() for name, value in model.named_parameters()}
            np.savez(options.save, **weights, losses=losses, accuracy=accuracy)
        print(f"test accuracy: {accuracy:.3f}")
        if len(set(hashes)) == 1:
            print(f"weights: identical bits on all {hvd.size()} ranks (sha256 {hashes[0][:16]})")
        else:
            print(f"weights: DIFFERENT on the ranks: {[h[:16] for h in hashes]}")
    hvd.shutdown()
    return 0 if len(set(hashes)) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
