"""Sparse tensors of the stand-in's torch device.

Their indices and values are tensors of the device. Operations that compute with them wait for the
current stream, and run on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_map

aten = torch.ops.aten
HOST = DispatchKeySet(DispatchKey.SparseCPU)
KEY = "SparsePrivateUse1"
NO_DATA = (  # their CPU kernels access no elements
    *("_sparse_coo_tensor_with_dims_and_tensors", "_sparse_coo_tensor_with_dims", "_indices", "_values", "indices"),
    *("values", "_nnz", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_"),
)


class Sparse:
    def __init__(self, name: str) -> None:
        self._name = name
        self._libraries = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
        self._libraries[0].fallback(self.run, KEY)
        for operation in NO_DATA:
            self._libraries[1].impl(operation, _as_cpu(getattr(aten, operation).default), KEY)
        self._libraries[1].impl("_copy_from", lambda given, to, _=False: _copy(to, given), KEY)

    def run(self, operation: Any, *args: Any, **kwargs: Any) -> Any:
        host_args, host_kwargs = tree_map(self._to_host, (args, kwargs))
        made = operation(*host_args, **host_kwargs)
        written = {}
        for argument, given, host in zip(operation._schema.arguments, args, host_args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written[id(host)] = given
                self._write(given, self._to_device(host))
        return tree_map(lambda one: written.get(id(one), self._to_device(one)), made)

    def _to_host(self, one: Any) -> Any:
        if isinstance(one, torch.device) and one.type == self._name:
            return torch.device("cpu")
        if not isinstance(one, torch.Tensor) or one.device.type != self._name:
            return one
        return with_parts(one, "cpu") if one.is_sparse else one.cpu()

    def _to_device(self, one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return with_parts(one, self._name) if one.is_sparse else one.to(self._name)

    @staticmethod
    def _write(to: torch.Tensor, made: torch.Tensor) -> None:
        if to.is_sparse:
            _copy(to, made)
        else:
            to.copy_(made)


def with_parts(one: torch.Tensor, device: Any) -> torch.Tensor:
    parts = one._indices().to(device), one._values().to(device)
    return torch.sparse_coo_tensor(*parts, one.shape, check_invariants=False, is_coalesced=one.is_coalesced())


def _copy(to: torch.Tensor, given: torch.Tensor) -> Any:
    return aten.copy_sparse_to_sparse_.default.redispatch(HOST, to, given)


def _as_cpu(operation: Any) -> Any:
    return lambda *args, **kwargs: operation.redispatch(HOST, *args, **kwargs)
