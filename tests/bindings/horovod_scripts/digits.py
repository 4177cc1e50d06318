"""Trains on handwritten digits as Horovod's MNIST example does.

It has partitioned data, a scaled learning rate with warm-up, a broadcast at the start, and averaged
metrics.
"""

import argparse

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--warmup-epochs", type=float, default=2)
parser.add_argument("--base-lr", type=float, default=0.02)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--use-mixed-precision", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
parser.add_argument("--workers", type=int, default=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.drop = nn.Dropout(0.1)
        self.hidden = nn.Linear(12 * 16, 40)
        self.out = nn.Linear(40, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        return self.out(self.drop(F.relu(self.hidden(x))))


def main(args):
    def learning_rate(epoch, batch):
        """Returns the learning rate, which rises to that of all workers in the first epochs."""
        if args.use_adasum:
            return args.base_lr
        progress = (epoch + (batch + 1) / len(train_loader)) / max(args.warmup_epochs, 1e-9)
        return args.base_lr * (1 + min(progress, 1.0) * (hvd.size() - 1))

    def train(epoch):
        model.train()
        train_sampler.set_epoch(epoch)
        for number, (data, target) in enumerate(train_loader):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(epoch, number)
            optimizer.zero_grad()
            if args.use_mixed_precision:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(data), target)
                scaler.scale(loss).backward()
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
                scaler.update()
            else:
                loss = F.cross_entropy(model(data), target)
                loss.backward()
                optimizer.step()

    def metric_average(value, name):
        return hvd.allreduce(torch.tensor(value), name=name).item()

    def test():
        model.eval()
        right, loss = 0.0, 0.0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                loss += F.cross_entropy(output, target, reduction="sum").item()
                right += output.argmax(1).eq(target).float().sum().item()
        loss = metric_average(loss / len(test_sampler), "avg_loss")
        accuracy = metric_average(right / len(test_sampler), "avg_accuracy")
        if hvd.rank() == 0:
            print(f"test loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)

    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())  # the models differ until the broadcast
    torch.set_num_threads(1)

    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    everything = TensorDataset(images, labels)
    train_dataset = Subset(everything, range(1400))
    test_dataset = Subset(everything, range(1400, len(everything)))

    loader_options = {"num_workers": args.workers}
    if args.workers:
        loader_options |= {"multiprocessing_context": "forkserver", "persistent_workers": True}
    train_sampler = DistributedSampler(train_dataset, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler, **loader_options)
    test_sampler = DistributedSampler(test_dataset, num_replicas=hvd.size(), rank=hvd.rank())
    test_loader = DataLoader(test_dataset, batch_size=200, sampler=test_sampler)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.base_lr, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    scaler = torch.amp.GradScaler("cpu", enabled=args.use_mixed_precision)

    for epoch in range(args.epochs):
        train(epoch)
        test()

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    gathered = hvd.allgather(weights[None])
    if hvd.rank() == 0:
        print("ranks agree" if all(torch.equal(one, gathered[0]) for one in gathered) else "ranks differ", flush=True)


if __name__ == "__main__":
    main(parser.parse_args())
