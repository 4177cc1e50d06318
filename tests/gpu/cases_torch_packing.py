"""Cases for gradients in buckets on a device, sparse ones, and states of models there."""

import torch
from cases_torch_training import STEPS, compare, loss_of, model, wrapped
from on_device import DEVICE, driver, only_a_stand_in

import ringcomm.torch as hvd


def launched(net, optimizer, step, to_none):
    """Returns the number of ringcomm's kernels that a step has launched."""
    optimizer.zero_grad(set_to_none=to_none)
    loss = loss_of(net, step, DEVICE)
    before = driver.standin_calls(b"cuLaunchKernel")
    loss.backward()
    optimizer.step()
    return driver.standin_calls(b"cuLaunchKernel") - before


@only_a_stand_in
def case_one_kernel_brings_all_gradients_of_a_bucket():
    for groups in (None, 2):
        net = model().to(DEVICE)
        optimizer = wrapped(net, groups=groups)
        counts = [launched(net, optimizer, step, step % 2 == 0) for step in range(STEPS + 2)]
        kept, fresh = counts[STEPS - 1], counts[STEPS]  # kept gradients are computed in the bucket
        assert fresh - kept == (groups or 1), counts
        assert counts[-1] == kept


def case_what_changes_gradients_before_they_travel_finds_them():
    how = {"everywhere": True, "min_elements": 0}
    compare(
        make=lambda p: torch.optim.SGD(p, lr=0.1), compression=hvd.Compression.topk(0.5, momentum=0.9, clip=1.0, **how)
    )


def case_gradients_in_another_order_than_their_parameters():
    def train(net, optimizer, device):
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(100 * step + hvd.rank())
            for parameter in net.parameters():
                parameter.grad = torch.randn(*reversed(parameter.shape), generator=generator).to(device).t()
            optimizer.step()

    compare(train)
