"""torch.autocast for the stand-in: CUDA's rules for the tests' operations, uncached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

KEY = "AutocastPrivateUse1"
LOWER = (
    *("linear", "matmul", "mm", "mv", "addmm", "addmv", "bmm", "baddbmm", "addbmm", "scaled_dot_product_attention"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "prelu"),
)
FLOAT32 = (
    *(
        "softmax.int",
        "log_softmax.int",
        "nll_loss",
        "nll_loss_nd",
        "cross_entropy_loss",
        "binary_cross_entropy_with_logits",
    ),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "layer_norm", "group_norm", "exp", "log", "pow.Tensor_Scalar", "rsqrt"),
    *("sum", "sum.dim_IntList", "prod", "cumsum", "norm.Scalar"),
)


def register(name: str) -> list[torch.library.Library]:
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, KEY)
    for names, dtype in ((LOWER, lambda: torch.get_autocast_dtype(name)), (FLOAT32, lambda: torch.float32)):
        for full in names:
            packet, _, overload = full.partition(".")
            aten.impl(full, _casting(getattr(getattr(torch.ops.aten, packet), overload or "default"), dtype, name), KEY)
    return [every, aten]


def _casting(operation: Any, dtype: Callable[[], torch.dtype], name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        def cast(one: Any) -> Any:
            fits = isinstance(one, torch.Tensor) and one.is_floating_point() and one.device.type == name
            return one.to(dtype()) if fits and one.dtype != torch.float64 else one

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
            given, named = tree_map(cast, (args, kwargs))
            return operation(*given, **named)

    return run
