"""Process sets: creation, removal, attributes, several at the same time, and training on them."""

import copy
import io
import pickle

import torch
from cases_1_basics import restart, world_communicator
from expected import alive, my_sets, raises, sets

import ringcomm.torch as hvd


def sum_on(one):
    return hvd.allreduce(torch.tensor([hvd.rank() + 1]), op=hvd.Sum, process_set=one).item()


def right_on(one):
    return sum(rank + 1 for rank in one.ranks)


def case_what_a_set_says():
    world = hvd.global_process_set
    assert world.process_set_id == 0 and world.ranks == list(range(hvd.size()))
    assert (world.size(), world.rank(), world.included()) == (hvd.size(), hvd.rank(), True)
    for one in sets():
        assert one.size() == len(one.ranks) and one.included() == (hvd.rank() in one.ranks)
        if one.included():
            assert one.ranks[one.rank()] == hvd.rank()
        else:
            raises(ValueError, one.rank)
    unused = hvd.ProcessSet([1, 0])
    assert unused.ranks == [0, 1] and unused.process_set_id is None and unused.mpi_comm is None
    assert unused.size() is None and unused.rank() is None and unused.included() == (hvd.rank() < 2)
    assert hvd.ProcessSet(world_communicator()).included() is None


def case_static():
    n = hvd.size()
    first, rest = hvd.ProcessSet([0]), hvd.ProcessSet(range(1, n))
    restart(process_sets=[first, rest])
    assert [first.process_set_id, rest.process_set_id] == [1, 2]
    mine = first if hvd.rank() == 0 else rest
    assert sum_on(mine) == right_on(mine)
    hvd.shutdown()
    assert first.process_set_id is None and hvd.global_process_set.process_set_id == 0
    hvd.init(process_sets=[rest, first])  # reuses the objects
    assert [first.process_set_id, rest.process_set_id] == [2, 1] and sum_on(mine) == right_on(mine)
    for wrong in ("static", 3, rest, [[0, "1"]], [[0.5]]):
        hvd.shutdown()
        raises(ValueError, hvd.init, process_sets=wrong)
        assert not hvd.is_initialized()
    hvd.init()
    for wrong in ([[0], [0]], [range(n)], [[n]], [[]]):  # a rank twice, the world, a rank outside of the world, no rank
        hvd.shutdown()
        raises(ValueError, hvd.init, process_sets=wrong)
        restart()
    restart(process_sets="Dynamic")
    alive()


def case_from_communicators():
    world = world_communicator()
    parity = world.Split(world.Get_rank() % 2, world.Get_rank())
    mine, both = hvd.ProcessSet(parity), hvd.ProcessSet([0, 1]) if world.Get_size() > 2 else hvd.ProcessSet([0])
    given = [mine, both] if world.Get_size() != 2 else [mine]
    assert mine.ranks is None and mine.mpi_comm is parity
    restart(comm=world, process_sets=given)
    assert mine.ranks == [r for r in range(hvd.size()) if r % 2 == hvd.rank() % 2]
    assert mine.process_set_id == 1 + hvd.rank() % 2 and sum_on(mine) == right_on(mine)
    if both.process_set_id and both.included():
        assert sum_on(both) == right_on(both)
    restart(process_sets=[mine])
    assert mine.included() and sum_on(mine) == right_on(mine)
    restart()
    whole = world.Dup()
    raises(ValueError, hvd.add_process_set, hvd.ProcessSet(whole))  # the set equals the global set
    if hvd.size() > 2:
        head = world.Split(int(world.Get_rank() > 1), 0)
        if world.Get_rank() < 2:
            assert hvd.ProcessSet(head).included() is None
        one = hvd.add_process_set([0, 1])
        assert hvd.remove_process_set(one)
        head.Free()
    whole.Free()
    parity.Free()
    alive()


def case_dynamic():
    n = hvd.size()
    for _ in range(3):
        one, other = hvd.add_process_set([n - 1, 0] if n > 2 else [0]), hvd.ProcessSet([1])
        assert hvd.add_process_set(other) is other and other.process_set_id != one.process_set_id
        for each in (one, other):
            if each.included():
                assert sum_on(each) == right_on(each)
        raises(ValueError, hvd.add_process_set, other)
        raises(ValueError, hvd.add_process_set, [1])
        assert hvd.remove_process_set(other) is True and hvd.remove_process_set(other) is False
        assert other.process_set_id is None and other.ranks == [1] and other.size() is None
        raises(ValueError, hvd.allreduce, torch.ones(1), process_set=other)
        assert hvd.remove_process_set(one)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    for wrong in ([], [n], [-1]):
        raises(ValueError, hvd.add_process_set, wrong)
    for wrong in (3, None, [1.5], ["a"]):
        raises(ValueError, hvd.ProcessSet, wrong)
    alive()


def case_overlapping_sets_at_once():
    """Many operations with one name, on all sets, in a different order on every rank."""
    mine = my_sets()
    if hvd.rank() % 2:
        mine.reverse()
    handles = [
        (one, kind, call(torch.tensor([float(hvd.rank() + 1)]), name=f"at once {i}", process_set=one))
        for i in range(10)
        for one in mine
        for kind, call in (("mean", hvd.allreduce_async), ("all", hvd.allgather_async))
    ]
    for one, kind, handle in reversed(handles):
        right = [r + 1.0 for r in one.ranks]
        assert hvd.synchronize(handle).tolist() == (right if kind == "all" else [sum(right) / len(right)])


def case_outsiders():
    """A rank outside the set is refused immediately; the other ranks continue."""
    for one in sets():
        if not one.included():
            calls = (
                lambda one=one: hvd.allreduce(torch.ones(1), process_set=one),
                lambda one=one: hvd.allgather_async(torch.ones(1), process_set=one),
                lambda one=one: hvd.broadcast(torch.ones(1), one.ranks[0], process_set=one),
                lambda one=one: hvd.alltoall(torch.ones(0), process_set=one),
                lambda one=one: hvd.reducescatter(torch.ones(1), process_set=one),
                lambda one=one: hvd.grouped_allreduce([torch.ones(1)], process_set=one),
                lambda one=one: hvd.barrier(one),
            )
            for call in calls:
                assert "process set" in raises(ValueError, call)
        else:
            outside = [r for r in range(hvd.size()) if r not in one.ranks]
            for root in (*outside, hvd.size(), -1):
                assert "root" in raises(ValueError, hvd.broadcast, torch.ones(1), root, process_set=one)
    alive()


def case_autograd():
    for one in my_sets():
        n, mean = one.size(), sum(r + 1 for r in one.ranks) / one.size()
        x = torch.full((n, 2), 1.0, requires_grad=True)
        for call, gradient in (
            (lambda x, one=one: hvd.allreduce(x, process_set=one), mean),
            (lambda x, one=one: hvd.allgather(x, process_set=one), mean),
            (lambda x, one=one: hvd.broadcast(x, one.ranks[-1], process_set=one), mean * (one.rank() == n - 1)),
            (lambda x, one=one: hvd.reducescatter(x, op=hvd.Sum, process_set=one), None),
            (lambda x, one=one: hvd.alltoall(x, process_set=one), None),
        ):
            x.grad = None
            (call(x).sum() * (hvd.rank() + 1)).backward()
            if gradient is not None:
                assert torch.allclose(x.grad, torch.full_like(x, gradient)), (call, x.grad)
        weights = torch.tensor([[r + 1.0] * 2 for r in one.ranks])
        assert torch.equal(x.grad, weights)  # each row's gradient is sent by the rank that received the row


def case_state_on_sets():
    for one in my_sets():
        root = one.ranks[-1]
        assert hvd.broadcast_object({"from": hvd.rank()}, root, "object", one) == {"from": root}
        assert hvd.allgather_object(hvd.rank(), process_set=one) == one.ranks
        tensor = torch.full((2,), float(hvd.rank()))
        hvd.broadcast_parameters([("p", tensor)], root, process_set=one)
        assert tensor.tolist() == [float(root)] * 2


def case_training_on_overlapping_sets():
    """Every rank trains one model per set that it belongs to, alternating between them."""
    jobs = []
    for one in my_sets():
        net = torch.nn.Linear(3, 1, bias=False).double()
        torch.nn.init.ones_(net.weight)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        jobs.append((one, net, hvd.DistributedOptimizer(optimizer, net.named_parameters(), process_set=one)))
    for step in range(5):
        for _one, net, optimizer in jobs:
            optimizer.zero_grad()
            net(torch.full((1, 3), hvd.rank() + step + 1.0, dtype=torch.float64)).sum().backward()
            optimizer.step()
    for one, net, _optimizer in jobs:
        total = sum(sum(r + step + 1.0 for r in one.ranks) / one.size() for step in range(5))
        torch.testing.assert_close(net.weight, torch.full((1, 3), 1 - 0.1 * total, dtype=torch.float64))


def case_an_outsider_trains_alone():
    one = sets()[-1]
    net = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), process_set=one)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.full((1, 2), float(hvd.rank()))).sum().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    step = sum(one.ranks) / one.size() if one.included() else hvd.rank()
    torch.testing.assert_close(net.weight, torch.full((1, 2), -3.0 * step))
    raises(
        ValueError, hvd.DistributedOptimizer, torch.optim.SGD(net.parameters(), lr=1.0), process_set=hvd.ProcessSet([0])
    )


def case_copies_of_what_holds_a_set():
    one = sets()[-1]
    layer = hvd.SyncBatchNorm(3, process_set=one)
    assert (
        copy.deepcopy(layer).process_set is one and copy.deepcopy(hvd.SyncBatchNorm(3)).process_set.process_set_id == 0
    )
    assert pickle.loads(pickle.dumps(hvd.global_process_set)) is hvd.global_process_set
    assert pickle.loads(pickle.dumps(one)).ranks == one.ranks
    torch.save(layer, io.BytesIO())
