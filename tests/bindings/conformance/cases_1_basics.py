"""init, shutdown and repeated init, in all forms; ranks and hosts; refusals before init."""

import json
import os
import tempfile

import torch
from expected import alive, forget_sets, raises

import ringcomm.torch as hvd
from ringcomm._src.base import errors


def restart(**arguments):
    hvd.shutdown()
    forget_sets()
    hvd.init(**arguments)


def world_communicator():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def case_ranks():
    assert 0 <= hvd.rank() < hvd.size() and hvd.is_initialized()
    everybody = hvd.allgather_object((hvd.rank(), hvd.local_rank(), hvd.cross_rank()))
    assert [rank for rank, _, _ in everybody] == list(range(hvd.size()))
    assert hvd.local_size() == hvd.size() and hvd.local_rank() == hvd.rank()  # one host
    assert hvd.cross_size() == 1 and hvd.cross_rank() == 0 and hvd.is_homogeneous()
    assert hvd.mpi_enabled() and isinstance(hvd.mpi_threads_supported(), bool)


def case_init_twice_does_nothing():
    hvd.init()
    hvd.init(comm=None, process_sets="dynamic")
    alive()


def case_before_init():
    hvd.shutdown()
    hvd.shutdown()  # does nothing
    assert not hvd.is_initialized() and not hvd.mpi_enabled() and hvd.is_homogeneous() is True
    questions = (hvd.size, hvd.rank, hvd.local_size, hvd.local_rank, hvd.cross_size, hvd.cross_rank)
    net = torch.nn.Linear(2, 2)
    operations = (
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.grouped_allreduce_([torch.ones(1)]),
        lambda: hvd.allgather_async(torch.ones(1)),
        lambda: hvd.broadcast_(torch.ones(1), 0),
        lambda: hvd.alltoall(torch.ones(1), splits=[1]),
        lambda: hvd.reducescatter(torch.ones(1)),
        hvd.barrier,
        lambda: hvd.add_process_set([0]),
        lambda: hvd.remove_process_set(hvd.ProcessSet([0])),
        lambda: hvd.start_timeline("nowhere"),
        hvd.stop_timeline,
        hvd.mpi_threads_supported,
        lambda: hvd.broadcast_object(1),
        lambda: hvd.allgather_object(1),
        lambda: hvd.broadcast_parameters(net.state_dict(), 0),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0)),
        lambda: hvd.elastic.ElasticSampler([1, 2]),
        hvd.global_process_set.size,
        hvd.global_process_set.rank,
        hvd.global_process_set.included,
    )
    for call in (*questions, *operations):
        assert "init" in raises(ValueError, call)
        raises(hvd.HorovodInternalError, call)
    hvd.init()
    alive()


def case_again_and_again():
    for _ in range(3):
        restart()
        alive()


def case_communicators():
    world = world_communicator()
    restart(comm=world)
    alive()
    restart(comm=[])
    alive()
    restart(comm=list(range(world.Get_size())))
    alive()
    reverse = world.Split(0, -world.Get_rank())
    restart(comm=reverse)
    assert hvd.rank() == world.Get_size() - 1 - world.Get_rank()
    alive()
    hvd.shutdown()
    for wrong in (1.5, "0", [0.5], object()):
        raises(ValueError, hvd.init, comm=wrong)
    assert not hvd.is_initialized()
    hvd.init()
    reverse.Free()
    alive()


def case_some_ranks_only():
    """Two jobs in one: the last rank alone, and the remaining ranks."""
    world = world_communicator()
    last = world.Get_size() - 1
    others = list(range(last))
    restart(comm=[last] if world.Get_rank() == last else others)
    assert hvd.size() == (1 if world.Get_rank() == last else last)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.shutdown()
    world.Barrier()
    part = world.Split(world.Get_rank() % 2, world.Get_rank())
    hvd.init(comm=part)
    assert hvd.size() == part.Get_size() and hvd.rank() == part.Get_rank()
    assert hvd.allreduce(torch.tensor([world.Get_rank() % 2])).item() == world.Get_rank() % 2
    hvd.shutdown()
    part.Free()
    world.Barrier()
    raises(ValueError, hvd.init, comm=[(world.Get_rank() + 1) % world.Get_size()])
    hvd.init()
    alive()


def case_operations_in_flight_end_with_shutdown():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(3), name="never")
    restart()
    if hvd.rank() == 0:
        raises(errors.HorovodInternalError, hvd.synchronize, handle)
    alive()


def case_timeline():
    path = os.path.join(tempfile.gettempdir(), f"ringcomm-timeline-{hvd.broadcast_object(os.getpid())}.json")
    hvd.start_timeline(path, mark_cycles=True)
    hvd.allreduce(torch.ones(5), name="seen")
    hvd.stop_timeline()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        with open(path, encoding="utf-8") as file:
            assert "allreduce.seen" in json.dumps(json.load(file))
        os.remove(path)
    alive()


def case_variables_of_horovod():
    values = {
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CACHE_CAPACITY": "0",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",
        "HOROVOD_CYCLE_TIME": "0.1",
        "HOROVOD_TIMELINE": "DYNAMIC",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
    }
    os.environ.update(values)
    try:
        restart()
    finally:
        for name in values:
            del os.environ[name]
    config = hvd.global_process_set.session().config
    assert (config.fusion_bytes, config.cache_capacity, config.stall_warn_seconds) == (0, 0, 30)
    assert not hvd.mpi_threads_supported()
    for _ in range(3):
        handles = [hvd.allreduce_async(torch.ones(n), name=f"plain.{n}", op=hvd.Sum) for n in range(5)]
        assert all((hvd.synchronize(handle) == hvd.size()).all() for handle in handles)
    alive()
    restart()
