"""Elastic training of a classifier, as in Horovod's elastic MNIST example.

It has a DistributedSampler, a learning rate scaled by the number of ranks, a commit after each
batch, and a test at the end. The digits are generated.
"""

import argparse
import os
import signal

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=20)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--kill", type=int, nargs=2, default=None, help="epoch and batch in which rank 1 of 3 is killed")
args = parser.parse_args()

hvd.init()
torch.manual_seed(args.seed)
torch.set_num_threads(1)


def digits(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, [count], generator=generator)
    shapes = torch.randn(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(shapes[labels] + torch.randn(count, 1, 8, 8, generator=generator), labels)


train_dataset, test_dataset = digits(600, 1), digits(300, 2)
train_sampler = DistributedSampler(train_dataset, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
test_sampler = DistributedSampler(test_dataset, num_replicas=hvd.size(), rank=hvd.rank())
test_loader = DataLoader(test_dataset, batch_size=100, sampler=test_sampler)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3)
        self.hidden = nn.Linear(8 * 9, 40)
        self.out = nn.Linear(40, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.convolution(x), 2)).flatten(1)
        x = F.dropout(F.relu(self.hidden(x)), 0.1, training=self.training)
        return F.log_softmax(self.out(x), dim=1)


model = Net()
lr_scaler = hvd.size() if not args.use_adasum else 1
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, args.epochs + 1):  # noqa: B020
        state.model.train()
        train_sampler.set_epoch(state.epoch)
        steps_remaining = len(train_loader) - state.batch
        for state.batch, (data, target) in enumerate(train_loader):
            if state.batch >= steps_remaining:
                break
            if args.kill == [state.epoch, state.batch] and (hvd.rank(), hvd.size()) == (1, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            state.optimizer.zero_grad()
            loss = F.nll_loss(state.model(data), target)
            loss.backward()
            state.optimizer.step()
            if state.batch % 5 == 0 and hvd.rank() == 0:
                print(f"epoch {state.epoch} batch {state.batch} loss {loss.item():.4f} on {hvd.size()}", flush=True)
            state.commit()
        state.batch = 0


def test():
    model.eval()
    loss, right = 0.0, 0.0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            right += output.argmax(1).eq(target).float().sum().item()
    loss = metric_average(loss / len(test_sampler), "avg_loss")
    accuracy = metric_average(right / len(test_sampler), "avg_accuracy")
    if hvd.rank() == 0:
        print(f"test loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)


def on_state_reset():
    print(f"rank {hvd.rank()} of {hvd.size()} goes on at epoch {state.epoch} batch {state.batch}", flush=True)
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size()


state = hvd.elastic.TorchState(model, optimizer, epoch=1, batch=0)
state.register_reset_callbacks([on_state_reset])
train(state)
test()

weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
gathered = hvd.allgather(weights[None])
if hvd.rank() == 0:
    print("ranks agree" if all(torch.equal(one, gathered[0]) for one in gathered) else "ranks differ", flush=True)
