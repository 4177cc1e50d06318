"""Broadcasts of parameters, optimizer state and objects: all ranks start from equal values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ringcomm._src.named.objects import allgather_object, broadcast_object
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.named.runtime import rank
from ringcomm._src.torch.asynchronous import synchronize
from ringcomm._src.torch.autograd import with_gradients as operations

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


# ---- parameters ------------------------------------------------------------------------------------------------------
def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _flatten(f"{prefix}.{key}" if prefix else str(key), value[key])
    elif value is not None:
        yield prefix, value


def _named_tensors(params: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, str | bytes | torch.Tensor | set | frozenset) or not isinstance(params, Iterable):
        raise ValueError(f"invalid params of type: {type(params)}")
    if isinstance(params, Mapping):
        pairs = list(_flatten("", params))
    else:
        pairs = []
        for number, item in enumerate(params):
            name, value = item if isinstance(item, tuple) else (None, item)
            pairs += _flatten(str(number) if name is None else str(name), value)
    for name, value in pairs:
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"broadcast_parameters takes tensors; {name} is a {type(value).__name__}: use broadcast_object"
            )
    return pairs


def broadcast_parameters(params: Any, root_rank: int, process_set: Any = global_process_set) -> None:
    """Broadcasts the root's values to every rank, in place.

    Parameters
    ----------
    params : Mapping | Iterable
        ``model.state_dict()`` (may be nested), ``model.named_parameters()``,
        ``model.parameters()``, or a list of tensors or of (name, tensor) pairs. Names, shapes and
        dtypes must be equal on all ranks. None values are skipped.
    root_rank : int
        Global rank that sends its values.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    ValueError
        ``params`` has another type.
    MismatchError
        On every rank, if names, shapes or dtypes differ.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 1)
    >>> _ = torch.nn.init.constant_(model.weight, rank + 1.0)
    >>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    >>> model.weight.tolist()
    [[1.0, 1.0]]
    """
    seen: set[tuple[int, torch.Size, tuple[int, ...]]] = set()
    handles = []
    for name, tensor in _named_tensors(params):
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and memory in seen:  # tied weights: one tensor under two names
            continue
        seen.add(memory)
        handles.append(operations.broadcast_async_(tensor, root_rank, f"parameters.{name}", process_set))
    for handle in handles:
        synchronize(handle)


# ---- optimizers ------------------------------------------------------------------------------------------------------
class _TensorPlaceholder:
    """Placeholder for a tensor in the description of a state."""

    def __init__(self, number: int, tensor: torch.Tensor) -> None:
        self.number, self.shape, self.dtype = number, tuple(tensor.shape), tensor.dtype
        self.on_host = tensor.is_cpu


def _describe(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns the nested value with placeholders for its tensors, and appends these to the list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TensorPlaceholder(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _describe(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_describe(item, tensors) for item in value)
    return value


def _restore(described: Any, current: Any, tensors: list[torch.Tensor], device: torch.device) -> Any:
    """Returns the described value with tensors in place of the placeholders.

    Tensors of the current value are reused where dtype, shape and memory match. All tensors are
    appended to `tensors` in order. `device`: device of new tensors that are not on the host.
    """
    if isinstance(described, _TensorPlaceholder):
        fits = (
            isinstance(current, torch.Tensor)
            and (current.dtype, current.is_cpu) == (described.dtype, described.on_host)
            and tuple(current.shape) == described.shape
            and not current.is_sparse
        )
        device = torch.device("cpu") if described.on_host else device
        tensors.append(current.detach() if fits else torch.empty(described.shape, dtype=described.dtype, device=device))
        return current if fits else tensors[-1]
    if isinstance(described, dict):
        known = current if isinstance(current, dict) else {}
        return {key: _restore(item, known.get(key), tensors, device) for key, item in described.items()}
    if type(described) in (list, tuple):
        known_items = list(current) if isinstance(current, list | tuple) else []
        known_items += [None] * (len(described) - len(known_items))
        return type(described)(
            _restore(item, now, tensors, device) for item, now in zip(described, known_items, strict=False)
        )
    return described


def _restore_all(described: Any, current: Any, tensors: list[torch.Tensor], parameters: list[torch.Tensor]) -> Any:
    """Runs `_restore` on a ``state_dict``. Allocates state on the device of its parameter."""
    device = next((p.device for p in parameters if not p.is_cpu), torch.device("cpu"))
    known = current.get("state", {})

    def device_of(key: Any) -> torch.device:
        return parameters[key].device if isinstance(key, int) and key < len(parameters) else device

    restored = {}
    for name, item in described.items():  # in the order in which `_describe` listed the root's tensors
        if name == "state":
            restored[name] = {
                key: _restore(value, known.get(key), tensors, device_of(key)) for key, value in item.items()
            }
        else:
            restored[name] = _restore(item, current.get(name), tensors, device)
    return restored


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: Any = global_process_set,
) -> None:
    """Broadcasts the root's optimizer state and options (learning rate and so on) to every rank.

    Every ``torch.optim`` optimizer is supported, also LBFGS, and also before its first step. If the
    state of a rank is empty or has other shapes, the rank gets the root's state. No step is taken,
    so parameters and gradients do not change.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        An optimizer, distributed or not, with the same parameter groups on every rank.
    root_rank : int
        Global rank that sends its state.
    model : torch.nn.Module | None
        Ignored; Horovod has this argument.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    ValueError
        On a rank with parameter groups that differ from the root's in number or size.

    Examples
    --------
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1 * (rank + 1))
    >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """
    here = rank() == root_rank
    state = optimizer.state_dict()
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    own_tensors: list[torch.Tensor] = []
    described = broadcast_object(
        (_describe(state, own_tensors), sizes) if here else None, root_rank, "optimizer_state", process_set
    )
    root_state, root_sizes = described
    tensors: list[torch.Tensor] = []
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    restored = state if here else _restore_all(root_state, state if sizes == root_sizes else {}, tensors, parameters)
    for number, tensor in enumerate(own_tensors if here else tensors):
        operations.broadcast_(tensor, root_rank, f"optimizer_state.{number}", process_set)
    if here:
        return
    if sizes != root_sizes:
        raise ValueError(
            f"the optimizer has parameter groups of {sizes} parameters on rank {rank()}, but of {root_sizes} on rank "
            f"{root_rank}: construct it with the same parameter groups on all ranks"
        )
    _put_back(optimizer, restored)


def _put_back(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    # Unlike load_state_dict, this does not cast, copy, or call hooks. The integer keys of a
    # state_dict number the parameters across the groups.
    by_number = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    optimizer.state.clear()
    for key, value in state["state"].items():
        optimizer.state[by_number[key] if isinstance(key, int) else key] = value
    for group, root_group in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update((key, value) for key, value in root_group.items() if key != "params")
