"""Packs torch tensors for commits of elastic states, with one copy of their memory.

`ringcomm._src.elastic.member.packing` calls the function that is registered here.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch

from ringcomm._src.arrays.device import devices
from ringcomm._src.elastic.member.packing import register
from ringcomm._src.torch.kind import DEVICES


def _reduce(tensor: torch.Tensor) -> Any:
    plain = tensor.detach()
    if plain.layout != torch.strided or plain.is_quantized or type(plain) not in (torch.Tensor, torch.nn.Parameter):
        return plain.__reduce_ex__(5)
    flat = plain.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    how = plain.dtype, tuple(plain.shape), plain.device.type, tensor.requires_grad, is_parameter
    memory: Any = flat.numpy()
    return _rebuild, (pickle.PickleBuffer(memory), *how)


def _rebuild(
    memory: Any, dtype: torch.dtype, shape: tuple[int, ...], device: str, requires_grad: bool, is_parameter: bool
) -> torch.Tensor:
    if memoryview(memory).nbytes == 0:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        if memoryview(memory).readonly:  # a small tensor, stored in the pickle stream itself
            memory = bytearray(memory)
        tensor = torch.frombuffer(memory, dtype=torch.uint8).view(dtype).reshape(shape)
    if device != "cpu":
        # Use this rank's GPU: the tensor may have been saved by another rank, on another GPU.
        tensor = tensor.to(torch.device(device, devices.of_this_rank()) if device in DEVICES else device)
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


register(torch.Tensor, _reduce)
