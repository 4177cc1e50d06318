"""The timeline of a DistributedOptimizer shows what `ringcomm advise` reads from it."""

import os
import tempfile
import time

import pytest
import torch
from torch import nn
from training import sgd

import ringcomm.torch as hvd
from ringcomm._src.cli.advise_input import read_timeline


def case_a_timeline_shows_the_step_of_one_process():
    net = nn.Sequential(*(nn.Linear(300, 300) for _ in range(8)))
    hvd.broadcast_parameters(net.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    path = os.path.join(tempfile.gettempdir(), f"ringcomm-advise-{hvd.broadcast_object(os.getpid())}.json")
    hvd.start_timeline(path)
    for _ in range(14):
        optimizer.zero_grad()
        middle = net[:4](torch.ones(64, 300))
        middle.register_hook(lambda _: time.sleep(0.03))
        net[4:](middle).square().mean().backward()
        optimizer.step()
    hvd.stop_timeline()
    if hvd.rank() > 0:
        return
    sizes = {name: 4 * parameter.numel() for name, parameter in net.named_parameters()}
    if hvd.size() == 1:
        with pytest.raises(ValueError, match="does not show three steps"):
            read_timeline(path)
    else:
        step = read_timeline(path)
        assert sorted(step.sizes) == sorted(sizes.values())
        assert step.forward > 0 and step.backward == step.ready[0] == max(step.ready) > min(step.ready) == 0
        assert sum(ready > 0.03 for ready in step.ready) == 8  # gradients of the layers before the sleep
    os.remove(path)
