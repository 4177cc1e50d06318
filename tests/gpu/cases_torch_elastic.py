"""States of models on a device: complete, whichever stream wrote them last."""

import torch
from cases_torch_training import STEPS, equal, model, plain, weights, wrapped
from on_device import DEVICE, busy, cuda

import ringcomm.torch as hvd


def late(act):
    """Runs `act` on a stream that no other stream waits for."""
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side), torch.no_grad():
        busy(side)
        act()


def seen(net):
    """Returns the weights as a stream without waits reads them."""
    with cuda.stream(cuda.Stream()):
        return weights(net)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def case_a_state_is_kept_and_brought_back():
    def trained(device):
        net = model().to(device)
        optimizer = wrapped(net, make=adam)
        state = hvd.elastic.TorchState(net, optimizer, step=0, mean=torch.zeros(2).to(device))
        plain(net, optimizer, device)
        first = net[0].weight

        def change(by):
            def act():
                first.mul_(by)
                optimizer.state[first]["exp_avg"].mul_(by)
                state.mean.add_(by)

            late(act) if device == DEVICE else torch.no_grad()(act)()

        change(2.0)
        state.step = STEPS
        state.commit()
        change(float("nan"))
        state.step = 99
        state.restore()
        restored = seen(net)
        assert (state.step, state.mean.device.type, state.mean.tolist()) == (STEPS, device, [2.0, 2.0])
        plain(net, optimizer, device)
        if hvd.rank() > 0:
            change(float("nan"))
        state.sync()
        synced = seen(net)
        plain(net, optimizer, device)
        return torch.cat([restored, synced, weights(net), state.mean.cpu()])

    equal(trained(DEVICE), trained("cpu"))
