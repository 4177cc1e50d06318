"""Cases for DistributedDataParallel with models on a device: equal weights as on the CPU."""

import torch
import torch.distributed as dist
from cases_torch_distributed import start
from cases_torch_sparse import Words
from cases_torch_sparse import loss_of as words_loss
from cases_torch_training import STEPS, Unused, equal, loss_of, model, sgd, weights
from on_device import DEVICE, cuda
from torch.nn.parallel import DistributedDataParallel as DDP

import ringcomm.torch as hvd
import ringcomm.torch.distributed as hvd_dist


def trained(device, make=model, loss=loss_of, optimizer=sgd, **options):
    start()
    net = make().to(device)
    parallel, optimizer = DDP(net, **options), optimizer(net.parameters())
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss(parallel, step, device).backward()
        optimizer.step()
    return weights(net)


def compare(**options):
    equal(trained(DEVICE, **options), trained("cpu", **options))


def case_models():
    compare(bucket_cap_mb=1e-4, gradient_as_bucket_view=True)
    compare(make=Unused, find_unused_parameters=True)
    compare(make=Words, loss=words_loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.5))


def case_compression_hook():
    results = []
    for device in (DEVICE, "cpu"):
        start()
        net = model().to(device)
        parallel, optimizer = DDP(net), sgd(net.parameters())
        parallel.register_comm_hook(None, hvd_dist.compression_hook(hvd.Compression.int8(everywhere=True)))
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(parallel, step, device).backward()
            optimizer.step()
        results.append(weights(net))
    equal(*results)


def case_on_a_side_stream():
    with cuda.stream(cuda.Stream()):
        mine = trained(DEVICE)
    equal(mine, trained("cpu"))
    dist.destroy_process_group()
