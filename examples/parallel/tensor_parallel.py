"""Tensor parallelism (Megatron-LM): matrices are divided; each rank has a part of every layer.

    ringrun -np 2 python examples/parallel/tensor_parallel.py

The first of two consecutive matrices is divided by columns (ColwiseParallel) and the second by rows
(RowwiseParallel), so that no data is exchanged between them. Megatron's f precedes them (identity
forward, all-reduce backward), and g follows them (all-reduce forward, identity backward). An
attention's heads are divided in the same way. With sequence parallelism the layers in between
(norms, dropout) are divided along the sequence. f and g then become an all-gather and a
reduce-scatter, which move equally many bytes, and each rank keeps a part of the activations. With
loss parallelism the logits stay divided along the vocabulary.
"""

import torch
from common import compare, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

WIDTH, HEADS, LENGTH, WORDS = 32, 8, 8, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        heads = [one(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        return self.o(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.block = nn.Embedding(WORDS, WIDTH), Block()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.block(self.words(x))))


rank, size = start()
mesh = init_device_mesh("cpu", (size,))
plain, net = Net(), Net()
into_rows = RowwiseParallel(output_layouts=Shard(1))  # scatters the sum along the sequence
by_sequence = ColwiseParallel(input_layouts=Shard(1))  # gathers the sequence first
parallelize_module(
    net,
    mesh,
    {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "block.before": SequenceParallel(),
        "block.q": by_sequence,
        "block.k": by_sequence,
        "block.v": by_sequence,
        "block.o": into_rows,
        "block.between": SequenceParallel(),
        "block.up": by_sequence,
        "block.down": into_rows,
        "norm": SequenceParallel(),
        "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    },
)
x = torch.randint(WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(1))
y = x.roll(-1, 1)
nn.functional.cross_entropy(plain(x).flatten(0, 1), y.flatten()).backward()
with loss_parallel():
    nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
got = {name: one.grad.full_tensor() for name, one in net.named_parameters()}
compare(got, {name: one.grad for name, one in plain.named_parameters()})
