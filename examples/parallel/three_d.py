"""Combines data, pipeline and tensor parallelism on 8 ranks: 2 shards, 2 stages, 2 halves.

    ringrun -np 8 python examples/parallel/three_d.py

It trains a character model, which predicts the next letter of a text. Neighbours in the mesh's last
dimension exchange most data, those in its first dimension least. Therefore "tensor" is last, where
ranks share a host.
"""

import torch
import torch.distributed as dist
from common import compare, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

TEXT = "the quick brown fox jumps over the lazy dog while the small red hen looks on "
WIDTH, LENGTH, BATCH, SMALL = 32, 8, 16, 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    ends = nn.Embedding(128, WIDTH), nn.Linear(WIDTH * LENGTH, 128)
    return nn.Sequential(ends[0], Layer(), Layer(), Layer(), nn.Flatten(), ends[1])


codes = torch.tensor([ord(letter) for letter in TEXT])
windows = codes.unfold(0, LENGTH + 1, 1)[: 2 * BATCH]
rank, size = start()
if size != 8:
    raise SystemExit("three_d.py is for 8 ranks: ringrun -np 8")
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("data", "pipeline", "tensor"))
replica, stage = mesh.get_local_rank("data"), mesh.get_local_rank("pipeline")

plain, whole = model(), model()
part = nn.Sequential(*(list(whole)[:3] if stage == 0 else list(whole)[3:]))
names = {id(one): name for name, one in whole.named_parameters()}
named = {name: names[id(one)] for name, one in part.named_parameters()}
for layer in part:
    if isinstance(layer, Layer):
        parallelize_module(layer, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
pipe = Schedule1F1B(
    PipelineStage(part, stage, 2, torch.device("cpu"), group=mesh.get_group("pipeline")),
    SMALL,
    loss_fn=nn.functional.cross_entropy,
)
mine = windows[replica * BATCH : (replica + 1) * BATCH]
pipe.step(*([mine[:, :-1]] if stage == 0 else []), target=mine[:, -1])
for one in part.parameters():
    held = one.grad.to_local() if isinstance(one.grad, DTensor) else one.grad
    dist.all_reduce(held, dist.ReduceOp.AVG, group=mesh.get_group("data"))

nn.functional.cross_entropy(plain(windows[:, :-1]), windows[:, -1]).backward()
got = {
    named[name]: one.grad.full_tensor() if isinstance(one.grad, DTensor) else one.grad
    for name, one in part.named_parameters()
}
compare(got, {name: one.grad for name, one in plain.named_parameters()})
