"""Cases of DistributedOptimizer(overlap_forward=True): equal to a plain optimizer bit for bit."""

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import torch

import ringcomm.torch as hvd
from ringcomm._src.torch.overlap.parameter import ParameterInFlight

WIDTH, LAYERS, STEPS = 300, 4, 9  # a weight is larger than the smallest piece

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with all": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "Adam, foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p, t0=3),
}


class Net(torch.nn.Module):
    """Weights that two modules share, a branch that few steps use, an embedding, a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(200, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.branch = torch.nn.Linear(WIDTH, WIDTH)
        self.frozen = torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, indices: torch.Tensor, branch: bool = False) -> torch.Tensor:
        x = self.embed(indices).mean(1)
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * self.scale
        if branch:
            x = self.branch(x)
        return self.frozen(x) @ self.embed.weight.T


def batch(step: int, rank: int, branches: bool) -> tuple[torch.Tensor, torch.Tensor, bool]:
    random = torch.Generator().manual_seed(100 * step + rank)
    indices, targets = torch.randint(200, (4, 6), generator=random), torch.randint(200, (4,), generator=random)
    return indices, targets, branches and step % 3 == 2


def loss_of(model: torch.nn.Module, step: int, rank: int, branches: bool = True) -> torch.Tensor:
    indices, targets, branch = batch(step, rank, branches)
    return torch.nn.functional.cross_entropy(model(indices, branch), targets)


def made(kind: str, overlap: bool, **options: Any) -> tuple[Net, Any]:
    torch.manual_seed(7)
    model = Net()
    optimizer = OPTIMIZERS[kind](model.parameters())
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap_forward=overlap, **options)


def in_flight(model: torch.nn.Module) -> int:
    return sum(type(p) is ParameterInFlight for p in model.parameters())


def stepped(optimizer: Any, model: torch.nn.Module, steps: int) -> None:
    """Takes steps, until some gradients are in flight after the last one."""
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), branches=False).backward()
        optimizer.step()
    assert hvd.size() == 1 or in_flight(model) > 0


def both(change: Callable[[Net, Any], Any], kind: str = "AdamW") -> None:
    """Checks that a script reads the same and trains the same with and without overlap."""
    results = []
    for overlap in (True, False):
        model, optimizer = made(kind, overlap)
        if overlap:
            stepped(optimizer, model, 6)
        else:
            for step in range(6):
                optimizer.zero_grad()
                loss_of(model, step, hvd.rank(), branches=False).backward()
                optimizer.step()
        found = change(model, optimizer)
        results.append([found, *(p.detach().clone() for p in model.parameters())])
    first, second = (torch.utils._pytree.tree_leaves(result) for result in results)
    assert_equal(first, second)


def trained(kind: str, overlap: bool, scheduled: bool = True, branches: bool = True, **options: Any) -> list[Any]:
    """Returns the losses, weights and state of the optimizer after some steps."""
    model, optimizer = made(kind, overlap, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8) if scheduled else None
    seen: list[Any] = []
    flying = 0
    for step in range(STEPS):
        if step % 2:
            optimizer.zero_grad()
        else:
            optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model, step, hvd.rank(), branches)
        loss.backward()
        optimizer.step()
        flying += in_flight(model)
        if scheduler is not None:
            scheduler.step()
        seen.append(loss.item())
    if overlap and hvd.size() > 1:
        assert flying > 0, "no gradient was in flight after step()"
    seen += [p.detach().clone() for p in model.parameters()]
    seen += [
        value.clone() if isinstance(value, torch.Tensor) else value
        for state in optimizer.state_dict()["state"].values()
        for value in state.values()
    ]
    return seen


def assert_equal(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def case_optimizers() -> None:
    for kind in OPTIMIZERS:
        assert_equal(trained(kind, True), trained(kind, False))


def case_options() -> None:
    for options in (
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.int8},
        {"op": hvd.Sum},
        {"op": hvd.Max},
        {"gradient_predivide_factor": 2.0},
        {"groups": 3},
    ):
        assert_equal(trained("SGD", True, **options), trained("SGD", False, **options))


def case_dtypes() -> None:
    def trained_in(dtype: torch.dtype, overlap: bool) -> list[Any]:
        torch.manual_seed(7)
        model = Net().to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap_forward=overlap)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step, hvd.rank()).backward()
            optimizer.step()
        assert (in_flight(model) > 0) == (overlap and hvd.size() > 1)
        assert all(p.isfinite().all() for p in model.parameters())
        return [p.detach().clone() for p in model.parameters()]

    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert_equal(trained_in(dtype, True), trained_in(dtype, False))


def case_readers_get_the_new_values() -> None:
    """Everything that reads a parameter or a gradient after step() waits for it."""

    def module_copy(model: Net, _: Any) -> Any:
        twin = copy.deepcopy(model)
        assert all(type(p) is torch.nn.Parameter for p in twin.parameters())
        return [p.detach() for p in twin.parameters()]

    def saved(model: Net, _: Any) -> Any:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        return torch.load(file)

    def pickled(model: Net, _: Any) -> Any:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        return [p.detach() for p in torch.load(file, weights_only=False).parameters()]

    def gradients(model: Net, _: Any) -> Any:
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    def written(model: Net, _: Any) -> Any:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)

    def cleared(model: Net, optimizer: Any) -> Any:
        model.zero_grad()
        assert all(p.grad is None for p in model.parameters())

    def cleared_later(model: Net, optimizer: Any) -> Any:
        optimizer.zero_grad()
        assert all(p.grad is None for p in model.parameters())

    def zeroed(model: Net, optimizer: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    def without_gradients(model: Net, _: Any) -> Any:
        with torch.inference_mode():
            return loss_of(model, 9, 0).clone()

    def in_bfloat16(model: Net, _: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            return loss_of(model, 9, 0)

    def moved(model: Net, _: Any) -> Any:
        return [p.detach() for p in model.double().parameters()]

    def as_vector(model: Net, _: Any) -> Any:
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()

    def listed(model: Net, _: Any) -> Any:
        return torch._foreach_norm(list(model.parameters()))

    def printed(model: Net, _: Any) -> Any:
        return [repr(p) for p in model.parameters()]

    def as_numpy(model: Net, _: Any) -> Any:
        return [torch.from_numpy(p.detach().numpy().copy()) for p in model.parameters()]

    def state(model: Net, optimizer: Any) -> Any:
        return [optimizer.state[p]["exp_avg"].clone() for p in model.parameters() if p in optimizer.state]

    def broadcast(model: Net, _: Any) -> Any:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    def loaded(model: Net, optimizer: Any) -> Any:
        optimizer.load_state_dict(optimizer.state_dict())
        loss_of(model, 3, hvd.rank()).backward()
        optimizer.step()

    def functional(model: Net, _: Any) -> Any:
        indices, _targets, _branch = batch(3, 0, False)
        return torch.func.functional_call(model, dict(model.named_parameters()), (indices,)).detach()

    def shut_down(model: Net, _: Any) -> Any:
        hvd.shutdown()
        assert in_flight(model) == 0
        hvd.init()

    changes = [change for change in locals().values() if callable(change)]
    for change in changes:
        both(change)


def case_metadata_does_not_wait() -> None:
    model, optimizer = made("SGD", True)
    stepped(optimizer, model, 6)
    flying = in_flight(model)
    for p in model.parameters():
        assert (p.shape, p.dtype, p.ndim, p.numel(), p.is_leaf, p.size(0)) and p.device.type == "cpu"
    assert in_flight(model) == flying
    optimizer.zero_grad()
    assert in_flight(model) == flying
    optimizer.complete()
    assert in_flight(model) == 0


def case_steps_that_wait() -> None:
    """Clipping, closures, hooks, and a GradScaler need all gradients, and are equal too."""

    def clipped_by_value(model: Net, optimizer: Any) -> None:
        optimizer.synchronize()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        with optimizer.skip_synchronize():
            optimizer.step()

    def clipped_by_norm(model: Net, optimizer: Any) -> None:
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()

    def with_hook(model: Net, optimizer: Any) -> None:
        handle = optimizer.register_step_post_hook(lambda *_: None)
        optimizer.step()
        assert in_flight(model) == 0
        handle.remove()

    def with_scaler(model: Net, optimizer: Any) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number in range(6, 12):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, number, hvd.rank())).backward()
            scaler.step(optimizer)
            scaler.update()

    def with_closure(model: Net, optimizer: Any) -> Any:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, 6, hvd.rank())
            loss.backward()
            return loss

        return [optimizer.step(closure).detach() for _ in range(3)]

    def mixed(step: Callable[[Net, Any], None]) -> Callable[[Net, Any], None]:
        def change(model: Net, optimizer: Any) -> None:
            for number in range(6, 12):
                optimizer.zero_grad()
                loss_of(model, number, hvd.rank()).backward()
                if number % 2:
                    step(model, optimizer)
                else:
                    optimizer.step()

        return change

    for step in (clipped_by_value, clipped_by_norm, with_hook):
        both(mixed(step))
    both(with_scaler)
    both(with_closure)


def case_unused_parameters_are_stepped() -> None:
    """A parameter that the next forward pass does not use is stepped before backward."""
    model, optimizer = made("SGD", True)
    for step in range(8):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), branches=step >= 5).backward()
        optimizer.step()
    optimizer.zero_grad()
    (model.scale * 2).sum().backward()
    assert in_flight(model) == 0
    optimizer.step()


def case_new_parameters_and_groups() -> None:
    def grown(model: Net, optimizer: Any) -> Any:
        extra = torch.nn.Parameter(torch.ones(WIDTH))
        optimizer.add_param_group({"params": [extra], "lr": 0.5})
        for number in range(6, 14):
            optimizer.zero_grad()
            (loss_of(model, number, hvd.rank()) + (extra * hvd.rank()).sum()).backward()
            optimizer.step()
        return extra.detach()

    both(grown)


def case_a_stale_forward_pass_is_an_error() -> None:
    model, optimizer = made("SGD", True)
    stepped(optimizer, model, 6)
    if hvd.size() == 1:
        return
    optimizer.complete()
    loss = loss_of(model, 7, hvd.rank())
    early = (model.layers[-1].bias * 1.0).sum()  # needs no value that step() changes
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert in_flight(model) > 0
    try:
        early.backward()
        raise AssertionError("a stale forward pass was accepted")
    except RuntimeError as error:
        assert "computed before step()" in str(error) and "layers.3.bias" in str(error), error
    assert in_flight(model) == 0


def case_join_and_uneven_steps() -> None:
    """A rank that has no more data joins while gradients of its last step are in flight."""
    weights = []
    for overlap in (True, False):
        model, optimizer = made("SGD", overlap)
        for step in range(8 + (hvd.rank() == 0)):
            optimizer.zero_grad()
            loss_of(model, step, hvd.rank(), branches=False).backward()
            optimizer.step()
        last = hvd.join()
        assert in_flight(model) == 0
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        weights.append([p.detach().clone() for p in model.parameters()])
    assert_equal(*weights)


def case_refused() -> None:
    for optimizer, options, words in (
        (torch.optim.LBFGS, {}, "LBFGS"),
        (torch.optim.SGD, {"op": hvd.Adasum}, "Adasum"),
        (torch.optim.SGD, {"delay": 1}, "delay"),
    ):
        model = torch.nn.Linear(2, 2)
        try:
            hvd.DistributedOptimizer(
                optimizer(model.parameters()), model.named_parameters(), overlap_forward=True, **options
            )
            raise AssertionError(f"{words} was accepted")
        except ValueError as error:
            assert words in str(error) and "overlap_forward" in str(error), error


def case_a_script_module_is_detected() -> None:
    """TorchScript reads parameters without Python: its first backward pass raises an error."""
    model, optimizer = made("SGD", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = torch.jit.trace(model, (batch(0, 0, False)[0],), check_trace=False)
    failed = False
    for step in range(8):
        optimizer.zero_grad()
        indices, targets, _ = batch(step, hvd.rank(), False)
        try:
            torch.nn.functional.cross_entropy(compiled(indices), targets).backward()
        except RuntimeError as error:
            assert "TorchScript" in str(error), error
            failed = True
            break
        optimizer.step()
    assert failed == (hvd.size() > 1)


def case_torch_compile_is_refused_or_right() -> None:
    weights, found = [], ""
    for overlap in (True, False):
        model, optimizer = made("AdamW", overlap)
        compiled = torch.compile(model, backend="eager")
        try:
            for step in range(STEPS):
                optimizer.zero_grad()
                indices, targets, _ = batch(step, hvd.rank(), False)
                torch.nn.functional.cross_entropy(compiled(indices), targets).backward()
                optimizer.step()
        except Exception as error:  # torch's compiler defines its type
            found = str(error)
            break
        finally:
            torch._dynamo.reset()
        weights.append([p.detach().clone() for p in model.parameters()])
    if found:
        assert "overlap_forward=True cannot be combined with torch.compile" in found, found
    else:
        assert_equal(*weights)
