"""States of elastic training, outside of elastic jobs: save, restore, sync and run."""

from __future__ import annotations

import copy

import numpy as np
import torch
from training import batch, equal_nets, loss_of, model

import ringcomm.common.elastic as common
import ringcomm.torch as hvd
from ringcomm._src.base.errors import HorovodInternalError, RingcommError
from ringcomm._src.base.horovod_exceptions import HostsUpdatedInterrupt
from ringcomm._src.elastic.member.commits import ProcessCommit
from ringcomm._src.torch.elastic import state as states


def parts(seed=0):
    net = model(seed=seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)


def step(net, optimizer, scheduler, number=0):
    optimizer.zero_grad()
    loss_of(net, batch(number)).backward()
    optimizer.step()
    scheduler.step()


def raises(kind, act, *words):
    try:
        act()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def case_what_is_saved_comes_back():
    net, optimizer, scheduler = parts()
    sampler = hvd.elastic.ElasticSampler(range(40), seed=3)
    state = hvd.elastic.TorchState(
        net, optimizer, scheduler=scheduler, sampler=sampler, epoch=1, notes={"seen": [1]}, weights=np.zeros(3)
    )
    step(net, optimizer, scheduler)
    sampler.record_batch(0, 4)
    state.epoch, state.weights[1] = 2, 5.0
    state.commit()
    kept, kept_options = copy.deepcopy(net), copy.deepcopy(optimizer.state_dict())
    indices = list(sampler)
    step(net, optimizer, scheduler, 1)
    sampler.record_batch(1, 4)
    sampler.reset()
    state.notes["seen"].append(2)
    state.weights[1], state.epoch = 7.0, 3
    state.restore()
    equal_nets(net, kept, rtol=0, atol=0)
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], kept_options["state"][0]["exp_avg"])
    assert optimizer.param_groups[0]["lr"] == kept_options["param_groups"][0]["lr"] and scheduler.last_epoch == 1
    assert state.epoch == 2 and state.notes == {"seen": [1]} and state.weights[1] == 5.0
    assert sampler.processed_num == 4 * hvd.size() and not set(indices[:4]) & set(sampler)
    step(net, optimizer, scheduler, 1)
    state.restore()  # a second restore: the first one returned a copy
    equal_nets(net, kept, rtol=0, atol=0)
    assert state.model is net and state.optimizer is optimizer


def case_sync_gives_the_first_ranks():
    net, optimizer, scheduler = parts(seed=hvd.rank())
    for number in range(hvd.rank() + 1):
        step(net, optimizer, scheduler, number)
    state = hvd.elastic.TorchState(net, optimizer, scheduler=scheduler, epoch=hvd.rank() + 7)
    state.sync()
    theirs, their_optimizer, their_scheduler = parts(seed=0)
    step(theirs, their_optimizer, their_scheduler)
    equal_nets(net, theirs, rtol=0, atol=0)
    assert state.epoch == 7 and scheduler.last_epoch == 1 and optimizer.state_dict()["state"][0]["step"] == 1
    state.epoch = 9
    state.restore()  # sync also saves
    assert state.epoch == 7


def case_another_model_takes_its_place():
    net, optimizer, _ = parts()
    state = hvd.elastic.TorchState(net, optimizer)
    other = model(seed=5)
    state.model = other
    state.save()
    with torch.no_grad():
        next(other.parameters()).zero_()
    state.restore()
    equal_nets(other, model(seed=5), rtol=0, atol=0)


def case_hosts_are_told_to_all_ranks():
    """Any rank may receive the notification; then the function runs again, after the callbacks."""
    runs, resets = [], []

    @hvd.elastic.run
    def train(state, more):
        runs.append(state.batch)
        while state.batch < 5:
            state.batch += 1
            if state.batch == 3 and len(runs) == 1 and hvd.rank() == hvd.size() - 1:
                state.on_hosts_updated(1, 1)
            state.commit()
        return state.batch + more

    state = hvd.elastic.TorchState(batch=0)
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    assert train(state, more=10) == 15
    assert runs == [0, 3] and resets == [hvd.size()]
    state.on_hosts_updated(2, 1)
    assert isinstance(raises(HostsUpdatedInterrupt, state.check_host_updates), RuntimeError)
    state.check_host_updates()


def case_errors_are_not_hidden():
    @hvd.elastic.run
    def train(state):
        raise HorovodInternalError("as it was")

    raises(HorovodInternalError, lambda: train(hvd.elastic.TorchState(batch=0)), "as it was")
    state = common.ObjectState(batch=0)
    raises(ValueError, lambda: state.put_back({"other": 1}), "batch", "other")
    raises(TypeError, common.State, "save", "restore", "sync")
    raises(RingcommError, ProcessCommit().read, "nothing has been saved")


def case_a_state_of_ones_own():
    """A custom state as Horovod's users write it, with save, restore and sync."""

    class Counter(common.State):
        def __init__(self):
            super().__init__()
            self.count = self.saved = hvd.rank()

        def save(self):
            self.saved = self.count

        def restore(self):
            self.count = self.saved

        def sync(self):
            self.count = hvd.broadcast_object(self.count, 0)
            self.save()

    @hvd.elastic.run
    def train(state):
        assert state.count == 0
        state.count = 4
        state.commit()
        state.count = 5
        state.restore()
        return state.count

    assert train(Counter()) == 4
    kept = Counter()
    kept.count = 8
    kept.save()
    other = Counter()
    other.put_back(kept.contents())  # as the next process does
    assert other.count == 8


def case_a_handler_of_ones_own():
    class Box:
        content = 1

    class BoxHandler(states.StateHandler):
        def save(self):
            self.saved = self.value.content

        def restore(self):
            self.value.content = self.saved

        def sync(self):
            self.value.content = hvd.broadcast_object(self.value.content, 0)

    registry = states.get_handler_registry()
    states.set_handler_registry([(Box, BoxHandler), *registry])
    try:
        box = Box()
        state = hvd.elastic.TorchState(box=box)
        box.content = hvd.rank() + 2
        state.sync()
        assert box.content == 2
        box.content = 6
        state.restore()
        assert box.content == 2 and state.box is box
    finally:
        states.set_handler_registry(registry)


def case_a_sampler_among_some_ranks():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 1])
    sampler = None
    if pair.included():
        sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False, process_set=pair)
        assert list(sampler) == list(range(hvd.rank(), 10, 2))
        sampler.record_batch(0, 2)
        sampler.reset()
        assert list(sampler) == list(range(4 + hvd.rank(), 10, 2))
    else:
        raises(ValueError, lambda: hvd.elastic.ElasticSampler(range(10), process_set=pair), "rank")
    hvd.remove_process_set(pair)
