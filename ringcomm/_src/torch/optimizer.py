"""DistributedOptimizer: makes the step of an optimizer use the gradients of all ranks.

`arguments` checks the arguments. `reducing_optimizer`, `adasum_optimizer`, `relaxed.delayed` or
`overlap.optimizer` has the steps, and `wrapped` subclasses the optimizer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ringcomm._src.algorithms.registry import require_known
from ringcomm._src.base.ops import Adasum, Average
from ringcomm._src.compression.compression import resolved
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.adasum_optimizer import DeltaReducer, DistributedAdasumOptimizer
from ringcomm._src.torch.arguments import (
    Settings,
    check_compression,
    check_groups,
    drops_most,
    key_of,
    names_of,
    require_host,
    warn_of_unused,
)
from ringcomm._src.torch.compression import Compression, format_of, is_lossy
from ringcomm._src.torch.gradient_transforms import MomentumCorrection
from ringcomm._src.torch.overlap.optimizer import OverlappedOptimizer, check_separable
from ringcomm._src.torch.reducer import GradientReducer
from ringcomm._src.torch.reducing_optimizer import _DistributedOptimizer
from ringcomm._src.torch.relaxed.delayed import delayed_optimizer
from ringcomm._src.torch.wrapped import MARK, wrapped

ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
    delay: int = 0,
    overlap_forward: bool = False,
) -> Any:
    """Returns an optimizer that steps on gradients reduced over all ranks.

    Use it in place of ``optimizer``, and call ``step()`` equally often on all ranks.

    Gradients are reduced while backward computes them, or in ``step()`` if all ranks are on one
    host with one core each, where an overlap saves no time. To read ``.grad`` (a norm, a copy),
    call ``synchronize()`` first: until then ``.grad`` is this rank's gradient or the reduced one.

    A parameter without a gradient on some ranks counts as zeros there. A parameter without a
    gradient on all ranks keeps ``grad`` unchanged, usually None, so the optimizer skips it as in a
    single process. (Horovod sets a gradient of zeros.)

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer that is not distributed yet.
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Usually ``model.named_parameters()``, for names in messages. None: parameters are numbered.
    compression : type | WireFormat | str | dict | callable
        Format of data between hosts. ``Compression.none``, ``.fp16``, ``.bf16``; or a wire format
        with error feedback, which adds the residual to the next step's gradient:
        ``Compression.auto`` (int8 where the cost model predicts a gain), ``.int8``, ``.int4``,
        ``.onebit``, ``.ternary``, ``.topk(0.01)``, ``.threshold(0.1)``; or the name of one of these
        ("int8"). Wire formats need op Average or Sum, and leave small or one-dimensional gradients
        uncompressed. Within a host nothing is compressed unless the format has ``everywhere=True``.
        Further values: a dict from name patterns to formats, a function of name and parameter, or a
        custom compressor class (`ringcomm.torch.compression`), which sends gradients separately.
    backward_passes_per_step : int
        Number of backward passes whose gradients are added before the reduction. The sum is not
        divided by this number.
    op : Op
        ``Average``, ``Sum``, ``Min``, ``Max`` or ``Product`` over the ranks; or ``Adasum``: every
        rank steps on its local gradients, and the changes of the parameters are combined.
    gradient_predivide_factor : float
        With ``Average``, divides by this factor before the sum, and by size / factor after it.
    num_groups : int
        Older name of ``groups`` as a number.
    groups : int | list[Sequence[torch.Tensor]] | None
        Parameters to reduce together: a number of groups, or a list of lists of parameters.
    sparse_as_dense : bool
        Sends sparse gradients as dense ones, and makes them sparse again; slower at every density.
    process_set : ProcessSet
        The ranks to reduce over; on other ranks nothing is reduced.
    algorithm : str | None
        Algorithm of the all-reduces, as in `ringcomm.Communicator.allreduce` ("ring", ...). None:
        ``RINGCOMM_ALGORITHM``, or chosen by the core.
    delay : int
        1: gradients are used one step late, and are sent during the next forward and backward pass
        (Pipe-SGD, arXiv:1811.03619). This hides communication that takes no longer than
        computation. It needs a lower learning rate, ``finish()`` at the end, Average or Sum, dense
        gradients, and ``compression`` none, fp16 or bf16.
    overlap_forward : bool
        True: ``step()`` does not wait for all gradients. The next forward pass waits for those of a
        parameter when it uses the parameter first, and gradients are reduced in this order, big
        ones in pieces. The results are those of False, bit for bit. It saves time if reductions
        take a large part of a step, as between hosts (docs/tuning.md). It needs a model in CPU
        memory, and one of torch.optim's SGD, Adam, AdamW, Adagrad, Adadelta, Adamax, NAdam, RAdam,
        RMSprop, Rprop and ASGD. Clear gradients with the optimizer's ``zero_grad()``: the model's
        waits for all gradients, as does a step with ``synchronize()``, a GradScaler, a closure,
        hooks of ``step()`` or sparse gradients.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class; state, groups and defaults are the same.

    Raises
    ------
    ValueError
        Arguments do not fit together; the optimizer is distributed already; parameters are neither
        in CPU memory nor on a CUDA device; ``Compression.powersgd`` with parameters on a device.
    MismatchError
        From ``step()`` and ``synchronize()``, on every rank: ranks wrap different parameters.
    AssertionError
        From ``backward()``: more than ``backward_passes_per_step`` passes in one step.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    >>> (weight * (rank + 1)).sum().backward()  # the gradients of the ranks are 1 and 2
    >>> optimizer.step()
    >>> weight.tolist()
    [-1.5, -1.5]
    """
    if getattr(optimizer, MARK, False):
        raise ValueError(
            f"this {type(optimizer).__name__} is distributed already: its gradients would be reduced twice. Wrap an "
            "optimizer once, and use the optimizer that DistributedOptimizer returned"
        )
    compression = resolved(compression, Compression, rules=True)
    if delay:
        refused = {
            "algorithm": algorithm,
            "gradient_predivide_factor": None if gradient_predivide_factor == 1.0 else gradient_predivide_factor,
            "backward_passes_per_step": None if backward_passes_per_step == 1 else backward_passes_per_step,
            "overlap_forward": overlap_forward or None,
        }
        return delayed_optimizer(optimizer, named_parameters, compression, op, process_set, delay, refused)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    if algorithm is not None:
        require_known("allreduce", algorithm)
        if op == Adasum:
            raise ValueError(f"op=Adasum cannot be combined with algorithm={algorithm!r}")
    if overlap_forward and op == Adasum:
        raise ValueError("op=Adasum cannot be combined with overlap_forward=True")
    process_set.session()  # raises if the set is not in use
    if num_groups != 0:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = names_of(optimizer, named_parameters)
    warn_of_unused(compression, names)
    check_groups(groups)
    check_compression(compression, op)
    if overlap_forward:
        check_separable(optimizer, names)
    for name, parameter in names:
        require_host(format_of(compression, name, parameter), parameter)  # format_of checks the format first
    distributed = process_set.included() and process_set.size() > 1
    if distributed and process_set.rank() == 0 and isinstance(optimizer, ADAMS) and drops_most(compression, names):
        warnings.warn(
            f"compression={compression} drops most of each gradient. Adam divides by the variance of what remains, so "
            "it converges worse. Use int8 or int4, or SGD (docs/compression.md)",
            stacklevel=2,
        )
    adasum = op == Adasum and distributed
    reducing = OverlappedOptimizer if overlap_forward else _DistributedOptimizer
    made = wrapped(optimizer, DistributedAdasumOptimizer if adasum else reducing)
    made._parameter_names = {p: name for name, p in names}
    made.backward_passes_per_step = backward_passes_per_step
    made.op = op
    made.gradient_predivide_factor = gradient_predivide_factor
    made.sparse_as_dense = sparse_as_dense
    made.process_set = process_set
    made._synchronized, made._reducer = False, None
    if distributed:
        settings = Settings(
            op,
            gradient_predivide_factor,
            compression,
            backward_passes_per_step,
            groups,
            sparse_as_dense,
            process_set,
            algorithm,
            overlap_forward,
            key=key_of(names),
        )
        if is_lossy(compression):
            settings.transforms.append(MomentumCorrection(settings))
        made._reducer = DeltaReducer(settings, names) if adasum else GradientReducer(settings, names)
    return made
