"""Compares horovod.torch 0.28's public names with ringcomm: arguments, order, defaults."""

from __future__ import annotations

import inspect
import itertools
import threading
from typing import Any

import pytest
import torch

import ringcomm.torch as hvd
from ringcomm.torch import elastic, functions, mpi_ops

none, world = hvd.Compression.none, hvd.global_process_set

REQUIRED = inspect.Parameter.empty
R = REQUIRED
REDUCE = {"average": None, "name": None, "op": None, "prescale_factor": 1.0, "postscale_factor": 1.0}
REDUCE_COMPRESSED = {
    "average": None,
    "name": None,
    "compression": none,
    "op": None,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "process_set": world,
}
SCATTER = {"name": None, "op": hvd.Average, "process_set": world, "prescale_factor": 1.0, "postscale_factor": 1.0}
SCATTER_COMPRESSED = {
    "name": None,
    "compression": none,
    "op": hvd.Average,
    "process_set": world,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
}
NAMED: dict[str, Any] = {"name": None, "process_set": world}
WITHOUT_ARGUMENTS = (
    *("size", "rank", "local_size", "local_rank", "cross_size", "cross_rank", "is_homogeneous"),
    *("mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built", "ddl_built"),
    *("ccl_built", "cuda_built", "rocm_built"),
)

FUNCTIONS: dict[str, dict[str, Any]] = {
    "allreduce": {"tensor": R, **REDUCE_COMPRESSED},
    "allreduce_": {"tensor": R, **REDUCE, "process_set": world},
    "allreduce_async": {"tensor": R, **REDUCE, "process_set": world},
    "allreduce_async_": {"tensor": R, **REDUCE, "process_set": world},
    "grouped_allreduce": {"tensors": R, **REDUCE_COMPRESSED},
    "grouped_allreduce_": {"tensors": R, **REDUCE, "process_set": world},
    "grouped_allreduce_async": {"tensors": R, **REDUCE, "process_set": world},
    "grouped_allreduce_async_": {"tensors": R, **REDUCE, "process_set": world},
    "sparse_allreduce_async": {"tensor": R, "name": R, "op": R, "process_set": world},
    "allgather": {"tensor": R, **NAMED},
    "allgather_async": {"tensor": R, **NAMED},
    "grouped_allgather": {"tensors": R, **NAMED},
    "grouped_allgather_async": {"tensors": R, **NAMED},
    "broadcast": {"tensor": R, "root_rank": R, **NAMED},
    "broadcast_": {"tensor": R, "root_rank": R, **NAMED},
    "broadcast_async": {"tensor": R, "root_rank": R, **NAMED},
    "broadcast_async_": {"tensor": R, "root_rank": R, **NAMED},
    "alltoall": {"tensor": R, "splits": None, **NAMED},
    "alltoall_async": {"tensor": R, "splits": None, **NAMED},
    "reducescatter": {"tensor": R, **SCATTER_COMPRESSED},
    "reducescatter_async": {"tensor": R, **SCATTER},
    "grouped_reducescatter": {"tensors": R, **SCATTER_COMPRESSED},
    "grouped_reducescatter_async": {"tensors": R, **SCATTER},
    "barrier": {"process_set": world},
    "join": {"device": -1},
    "poll": {"handle": R},
    "synchronize": {"handle": R},
    "init": {"comm": None, "process_sets": None},
    "shutdown": {},
    "is_initialized": {},
    "start_timeline": {"file_path": R, "mark_cycles": False},
    "stop_timeline": {},
    **{name: {} for name in WITHOUT_ARGUMENTS},
    "add_process_set": {"process_set": R},
    "remove_process_set": {"process_set": R},
    "broadcast_parameters": {"params": R, "root_rank": R},
    "broadcast_optimizer_state": {"optimizer": R, "root_rank": R, "model": None},
    "broadcast_object": {"obj": R, "root_rank": 0, "name": None, "process_set": world},
    "allgather_object": {"obj": R, "name": None},
    "DistributedOptimizer": {
        "optimizer": R,
        "named_parameters": None,
        "compression": none,
        "backward_passes_per_step": 1,
        "op": hvd.Average,
        "gradient_predivide_factor": 1.0,
        "num_groups": 0,
        "groups": None,
        "sparse_as_dense": False,
        "process_set": world,
    },
    "SyncBatchNorm": {
        "num_features": R,
        "eps": 1e-5,
        "momentum": 0.1,
        "affine": True,
        "track_running_stats": True,
    },
    "ProcessSet": {"ranks_or_comm": R},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments(name: str) -> None:
    ours = inspect.signature(getattr(hvd, name)).parameters
    theirs = FUNCTIONS[name]
    assert list(ours)[: len(theirs)] == list(theirs), "further arguments of ours come last"
    for argument, default in theirs.items():
        assert ours[argument].default == default, argument
    extra = [ours[argument] for argument in list(ours)[len(theirs) :]]
    assert all(one.default is not REQUIRED for one in extra)
    assert name in hvd.__all__


def test_constants_and_classes() -> None:
    ops = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert ops == (0, 1, 2, 3, 4, 5)  # scripts and option files use these numbers
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert str(hvd.HorovodInternalError()) == "" and str(hvd.HorovodInternalError(ValueError("why"))) == "why"
    for compressor in (hvd.Compression.none, hvd.Compression.fp16):
        assert list(inspect.signature(compressor.compress).parameters) == ["tensor"]
        assert list(inspect.signature(compressor.decompress).parameters) == ["tensor", "ctx"]


def test_modules() -> None:
    """Modules in which scripts look for names, besides ringcomm.torch itself."""
    for name in FUNCTIONS:
        if name not in ("DistributedOptimizer", "SyncBatchNorm") and not name.endswith(("_object", "_state", "ters")):
            assert getattr(mpi_ops, name) is getattr(hvd, name)
    for name in ("broadcast_object", "allgather_object", "broadcast_parameters", "broadcast_optimizer_state"):
        assert getattr(functions, name) is getattr(hvd, name)
    assert hvd.elastic is elastic
    sampler = inspect.signature(elastic.ElasticSampler).parameters
    assert [(one, sampler[one].default) for one in sampler] == [
        ("dataset", R),
        ("shuffle", True),
        ("seed", 0),
        ("process_set", hvd.global_process_set),
    ]
    import ringcomm._src.torch.compression
    import ringcomm._src.torch.elastic.sampler
    import ringcomm._src.torch.optimizer
    import ringcomm._src.torch.sync_batch_norm

    assert ringcomm.torch.compression.Compressor and ringcomm.torch.optimizer.DistributedOptimizer
    assert ringcomm.torch.sync_batch_norm.SyncBatchNorm is hvd.SyncBatchNorm


def test_modules_of_horovod_common() -> None:
    """Names of horovod.common.* are the same objects as ringcomm's."""
    import ringcomm
    from ringcomm._src.base import horovod_exceptions as exceptions
    from ringcomm._src.named import basics
    from ringcomm._src.named import build as util
    from ringcomm.common import process_sets

    assert exceptions.HorovodInternalError is ringcomm.HorovodInternalError
    assert issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync
    error = exceptions.HorovodVersionMismatchError("torch", "2", "1")
    assert isinstance(error, ImportError) and str(error) == exceptions.get_version_mismatch_message("torch", "2", "1")
    assert process_sets.ProcessSet is hvd.ProcessSet and process_sets.global_process_set is hvd.global_process_set
    one = basics.HorovodBasics("path", "mpi_lib_v2")
    for name in ("init", "rank", "is_homogeneous", "start_timeline", "nccl_built", "Average", "Adasum"):
        assert getattr(one, name) is getattr(hvd, name) is getattr(mpi_ops._basics, name)
    util.check_installed_version("pytorch", "0")
    assert util.get_average_backwards_compatibility_fun(one)(None, None) is hvd.Average
    assert util.extension_available("torch") and not util.extension_available("mxnet")
    assert util.is_iterable([]) and not util.is_iterable(1)
    for n in range(1, 9):
        parts = util.split_list(list(range(7)), n)
        assert list(itertools.chain(*parts)) == list(range(7)) and len(parts) == n
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for name in ("allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall"):
        words = "".join(word.capitalize() for word in name.split("_"))
        assert issubclass(getattr(mpi_ops, f"Horovod{words}"), torch.autograd.Function)


@pytest.mark.parametrize("ahead", [0, 1, 64])
def test_async_loader(ahead: int) -> None:
    from ringcomm.data import AsyncDataLoaderMixin, BaseDataLoader

    class Loader(BaseDataLoader):
        def __init__(self, count: int, fails_at: int = -1) -> None:
            self.count, self.fails_at = count, fails_at

        def __len__(self) -> int:
            return self.count

        def _iterate(self) -> Any:
            for batch in range(self.count):
                if batch == self.fails_at:
                    raise OSError("no such batch")
                yield batch

        def _process_batch(self, batch: Any) -> Any:
            return -batch

    class Ahead(AsyncDataLoaderMixin, Loader):
        pass

    threads = threading.active_count()
    for count in (0, 1, 5, 70):
        loader = Ahead(ahead, False, count)
        for _epoch in range(2):
            assert list(loader) == list(Loader(count)) == [-batch for batch in range(count)]
    half = iter(Ahead(ahead, count=1000))
    assert [next(half), next(half)] == [0, -1]
    half.close()
    failing = Ahead(async_loader_queue_size=ahead, count=9, fails_at=3)
    got = []
    with pytest.raises(OSError, match="no such batch"):
        for batch in failing:
            got.append(batch)
    assert got == [0, -1, -2]
    closed = Ahead(ahead, False, 1000)
    begun = iter(closed)
    next(begun)
    closed.close_async_loader()
    closed.close_async_loader()
    assert ahead == 0 or len(list(begun)) == 0
    assert threading.active_count() == threads, "a reader outlives its iteration"


def test_what_is_built() -> None:
    assert hvd.mpi_built() and not (hvd.gloo_built() or hvd.gloo_enabled() or hvd.ddl_built() or hvd.ccl_built())
    assert hvd.nccl_built() == 0 and hvd.cuda_built() and not hvd.rocm_built()
    assert not hvd.mpi_enabled(), "not before init()"


def test_helpers() -> None:
    mpi_ops.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with pytest.raises(ImportError):
        mpi_ops.check_extension("ringcomm.mxnet")
    assert [n for n in range(-1, 10) if mpi_ops.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert mpi_ops.gpu_available("torch") in (True, False)
    chosen = mpi_ops.handle_average_backwards_compatibility
    assert chosen(None, None) == hvd.Average and chosen(hvd.Max, None) == hvd.Max
    with pytest.warns(DeprecationWarning):
        assert chosen(None, False) == hvd.Sum
    with pytest.raises(ValueError):
        chosen(hvd.Sum, True)
