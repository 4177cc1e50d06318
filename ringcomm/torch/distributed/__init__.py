"""The backend "ringcomm" of ``torch.distributed``, for PyTorch's distributed libraries.

From torch 2.5 on, ``import torch`` registers the backend (entry point group ``torch.backends``).
With older versions, import this package or :mod:`ringcomm.torch` first. It serves CPU and CUDA
tensors::

    import torch.distributed as dist

    dist.init_process_group("ringcomm")  # under ringrun, mpirun, srun; on MPICH also under torchrun
    model = torch.nn.parallel.DistributedDataParallel(model)

Ranks and their number are MPI's: neither ``RANK`` nor ``MASTER_ADDR`` need be set.
"""

from ringcomm._src.shims.ringcomm_torch_backend import NAME, register
from ringcomm._src.torch.distributed.hooks import compression_hook
from ringcomm._src.torch.distributed.monitored import monitored_barrier
from ringcomm._src.torch.distributed.process_group import ProcessGroup
from ringcomm._src.torch.distributed.work import OperationTimeoutError
from ringcomm._src.torch.distributed.world import start_timeline, stop_timeline

__all__ = [
    "NAME",
    "OperationTimeoutError",
    "ProcessGroup",
    "compression_hook",
    "monitored_barrier",
    "register",
    "start_timeline",
    "stop_timeline",
]

register()
