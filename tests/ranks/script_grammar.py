"""What users write around a training step, as a grammar from which hypothesis draws scripts.

A script makes a network and optimizers, and repeats phases of statements. Whatever depends on the rank lets every rank
reach the same steps. Simple choices come first in each table: hypothesis shrinks to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import indent

from hypothesis import strategies as st

# ---- setup -----------------------------------------------------------------------------------------------------------
NETS = [
    "mlp()",
    "wide()",
    "tied()",
    "heads()",
    "normed()",
    "odd()",
    "checkpointed(reentrant=False)",
    "checkpointed(reentrant=True)",
    "words(sparse=False)",
    "words(sparse=True)",
]
OPTIMIZERS = [
    "torch.optim.SGD(net.parameters(), lr=0.1)",
    "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)",
    "torch.optim.SGD([{'params': list(net.parameters())[:2]}, {'params': list(net.parameters())[2:], 'lr': 0.03}], lr=0.1)",
    "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True)",
    "torch.optim.SGD(net.parameters(), lr=0.1, maximize=True, foreach=False)",
    "torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3)",
    "torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3, foreach=True, amsgrad=True)",
    "torch.optim.AdamW(net.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)",
    "torch.optim.RMSprop(net.parameters(), lr=0.01, eps=1e-2, momentum=0.5)",
    "torch.optim.Adagrad(net.parameters(), lr=0.1, eps=1e-3)",
    "torch.optim.NAdam(net.parameters(), lr=0.01, eps=1e-3)",
]
REAL_OPTIMIZERS = [  # which take no complex parameters
    "torch.optim.SGD(net.parameters(), lr=0.1, fused=True)",
    "torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3, fused=True)",
    "torch.optim.ASGD(net.parameters(), lr=0.1)",
]
SPARSE_OPTIMIZERS = [
    "torch.optim.SGD(net.parameters(), lr=0.1)",
    "torch.optim.Adagrad(net.parameters(), lr=0.1, eps=1e-3)",
]
OPTIONS = [
    "named_parameters=net.named_parameters()",
    "",
    "named_parameters=net.named_parameters(), op=hvd.Sum",
    "named_parameters=net.named_parameters(), groups=2",
    "groups=[list(net.parameters())[:2]]",
    "gradient_predivide_factor=2.0",
    "sparse_as_dense=True",
    "process_set=hvd.add_process_set(list(range(1, size)))",
    "algorithm='ring'",
]
BEFORE_WRAPPING = [
    "",
    "trained(net)[0].register_hook(lambda g: g * (rank + 1))",
    "for p in net.parameters():\n    p.register_post_accumulate_grad_hook(halve)",
    "net.register_full_backward_hook(lambda module, inputs, outputs: None)",
    "scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, 0.5)",
    "hvd.broadcast_parameters(net.state_dict(), root_rank=0)",
    "torch.nn.init.normal_(list(net.parameters())[0], generator=torch.Generator().manual_seed(rank))\n"
    "hvd.broadcast_parameters(net.state_dict(), root_rank=0)",
    "list(net.parameters())[0].requires_grad_(False)",
    "inner.register_step_post_hook(lambda *_: None)",
    "loss(net).backward()",
    "net = copy.deepcopy(net)\ninner = sgd(net)",
]
AFTER_WRAPPING = [
    "",
    "trained(net)[0].register_hook(lambda g: g.clamp(-0.01, 0.02))",
    "for p in net.parameters():\n    p.register_post_accumulate_grad_hook(grow)",
    "opt.register_step_pre_hook(lambda *_: clip(net))",
    "scheduler = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)",
    "hvd.broadcast_optimizer_state(opt, root_rank=0)",
    "shadow = copy.deepcopy(net)",
    "other = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3)\n"
    "other = hvd.DistributedOptimizer(other, named_parameters=net.named_parameters())",
    "loss(net).backward()\nopt.zero_grad()",
    "opt.zero_grad()\nloss(net).backward()\nfor p in net.parameters():\n    p.grad = None",
]

# ---- a step ----------------------------------------------------------------------------------------------------------
CLEARS = [
    "opt.zero_grad()",
    "net.zero_grad()",
    "opt.zero_grad(set_to_none=False)",
    "net.zero_grad(set_to_none=False)",
    "for p in net.parameters():\n    p.grad = None",
    "for p in net.parameters():\n    if p.grad is not None:\n        p.grad.zero_()",
    "for p in net.parameters():\n    if p.grad is not None:\n        p.grad = torch.zeros_like(p.grad)",
    "",
]
BACKWARDS = [
    "loss(net).backward()",
    "torch.autograd.backward([loss(net), 0.5 * loss(net)])",
    "if rank == 0:\n    loss(net).backward()",
    "(loss(net) * (rank + 1)).backward()",
    "value = loss(net)\nvalue.backward(inputs=trained(net)[:2])",
    "value = loss(net)\nvalue.backward(retain_graph=True)\nassert torch.isfinite(value)",
    "wanted = trained(net)\nfor p, g in zip(wanted, torch.autograd.grad(loss(net), wanted, allow_unused=True)):\n    p.grad = g",
    "for p in net.parameters():\n    p.grad = torch.full_like(p, rank + 1.0) if p.requires_grad else None",
    "thread = threading.Thread(target=lambda: loss(net).backward())\nthread.start()\nthread.join()",
    "with torch.autograd.detect_anomaly(check_nan=False):\n    loss(net).backward()",
    "x, y = batch()\nwith torch.autograd.graph.save_on_cpu():\n    loss(net).backward()",
    "value = loss(net)\nvalue = value + 0.01 * sum((p.abs() ** 2).sum() for p in net.parameters())\nvalue.backward()",
    "value = hvd.allreduce(loss(net).detach(), name='loss')\nnote('loss', value)\nloss(net).backward()",
    "with contextlib.suppress(ZeroDivisionError):\n    loss(net).backward()\n    1 / 0",
    "scaled = scaler.scale(loss(net))\nscaled.backward()",
]
MEANWHILE = [  # between backward and step; changes no gradient
    "",
    "norm = float(sum(g.norm() for g in grads(net)))",
    "kept.append([g for g in grads(net)])",
    "kept.append([g.clone() for g in grads(net)])",
    "torch.autograd.grad(loss(net), trained(net), allow_unused=True)",
    "if rank == 0:\n    torch.autograd.grad(loss(net), trained(net), allow_unused=True)",
    "with torch.no_grad():\n    note('value', loss(net))",
    "if rank == 0:\n    net.eval()\n    loss(net).detach()\n    net.train()",
    "copy.deepcopy(net)",
    "torch.save(net.state_dict(), io.BytesIO())",
    "copy.deepcopy(opt.state_dict())",
    "note('mean', hvd.allreduce(torch.tensor(float(rank)), name='mean'))",
    "with torch.no_grad():\n    for p in net.parameters():\n        p.mul_(0.99)",
    "for p in net.parameters():\n    p.data.mul_(0.99)",
    "hvd.barrier()",
    "[g.numpy(force=True).sum() for g in grads(net)]",
    "loss(net)",
]
EDITS = [  # of gradients, in steps without synchronize() those of this rank alone
    "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)",
    "torch.nn.utils.clip_grad_value_(net.parameters(), 0.02)",
    "for g in grads(net):\n    g.mul_(0.5)",
    "for g in grads(net):\n    g.mul_(rank + 1)",
    "if rank == 0:\n    for g in grads(net):\n        g.mul_(2)",
    "torch._foreach_mul_(grads(net), 0.5)",
    "for p in net.parameters():\n    if p.grad is not None:\n        p.grad = p.grad * 0.5",
    "for g in grads(net):\n    g.data.mul_(0.5)",
    "for g in grads(net):\n    g.data.mul_(1 + rank)",
    "if rank == 0:\n    for g in grads(net):\n        g.data.clamp_(-0.01, 0.01)",
    "for g in grads(net):\n    g.data = g.data * 0.5",
    "for g in grads(net):\n    g.detach().mul_(0.5)",
    "for g in grads(net):\n    g.detach().numpy(force=False)[...] *= 0.5",
    "for g in grads(net):\n    if g.numel():\n        g.data.view(-1)[0] = rank",
    "for g in grads(net):\n    g.copy_(torch.sign(g.real))",
    "for g in grads(net)[:1]:\n    g.zero_()",
    "for p in list(net.parameters())[:1]:\n    p.grad = None",
    "if rank == 0:\n    for p in list(net.parameters())[:1]:\n        p.grad = None",
    "for p in net.parameters():\n    if p.grad is not None:\n        p.grad.set_(p.grad * 2)",
]
UPDATES = ["opt.step()"]
CLOSURES = [
    "def closure():\n    opt.zero_grad()\n    value = loss(net)\n    value.backward()\n    return value\n\nopt.step(closure)",
    "def closure():\n    return loss(net).detach()\n\nopt.step(closure)",
    "def closure():\n    value = loss(net)\n    value.backward()\n    return value\n\nopt.step(closure)",
]
OTHER_STEPS = [
    "other.zero_grad()\nloss(net).backward()\nother.step()",
]
CHANGES = [  # between phases
    "",
    "for group in opt.param_groups:\n    group['lr'] *= 0.5",
    "list(net.parameters())[0].requires_grad_(False)",
    "for p in net.parameters():\n    p.requires_grad_(True)",
    "opt.load_state_dict(copy.deepcopy(opt.state_dict()))",
    "net.load_state_dict(copy.deepcopy(net.state_dict()))",
    "hvd.broadcast_parameters(net.state_dict(), root_rank=0)\nhvd.broadcast_optimizer_state(opt, root_rank=0)",
    "extra = nn.Linear(2, 2).to(trained(net)[0].dtype)\nnet = nn.Sequential(net, extra)\nopt.add_param_group({'params': list(extra.parameters())})",
    "extra = nn.Linear(2, 2).to(trained(net)[0].dtype)\nnet = nn.Sequential(net, extra)\ninner.add_param_group({'params': list(extra.parameters())})",
    "extra = nn.Linear(2, 2).to(trained(net)[0].dtype)\nnet = nn.Sequential(net, extra)\nopt.param_groups[0]['params'] += list(extra.parameters())",
    "del opt.param_groups[-1]['params'][-1]",
    "net.double()",
    "net.float()",
    "inner = sgd(net)\nopt = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters(), backward_passes_per_step=passes)",
    "net = copy.deepcopy(net)\ninner = sgd(net)\n"
    "opt = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters(), backward_passes_per_step=passes)",
    "opt.zero_grad()\nloss(net).backward()\nopt.zero_grad()",
    "loss(net).backward()\nnet.zero_grad()",
    "(g,) = torch.autograd.grad(loss(net), trained(net)[:1], create_graph=True, allow_unused=True)",
    "for p in net.parameters():\n    p.data = p.data.clone()",
    "trained(net)[-1].register_hook(lambda g: g * 2)",
    "for p in net.parameters():\n    p.register_post_accumulate_grad_hook(halve)",
    "opt.step()",
    "opt.synchronize()",
    "scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)\nscheduler.step()",
    "net, opt = copy.deepcopy((net, opt))\ninner = opt",
    "net, opt = pickle.loads(pickle.dumps((net, opt)))\ninner = opt",
    "passes = 3 - passes\nopt.set_backward_passes_per_step(passes)",
    "net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)\ninner = sgd(net)\n"
    "opt = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters(), backward_passes_per_step=passes)",
]


WRAPPED = "named_parameters=net.named_parameters(), backward_passes_per_step=passes"
EPISODES = [  # whole pieces of a script
    "for _ in range(3):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n    opt.step()\n    see(net)",
    "for _ in range(2 + rank):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n    see(net)\n"
    "hvd.join()\nhvd.broadcast_parameters(net.state_dict(), root_rank=size - 1)\n"
    "hvd.broadcast_optimizer_state(opt, root_rank=size - 1)\nopt.zero_grad()",
    "maker, judge = mlp(), nn.Linear(2, 1).double()\n"
    "makes = hvd.DistributedOptimizer(sgd(maker), named_parameters=maker.named_parameters(prefix='maker'))\n"
    "judges = hvd.DistributedOptimizer(sgd(judge), named_parameters=judge.named_parameters(prefix='judge'))\n"
    "for _ in range(4):\n    made = maker(batch()[0])\n    judges.zero_grad()\n    judge(made.detach()).square().mean().backward()\n"
    "    judges.step()\n    makes.zero_grad()\n    (judge(made) - 1).square().mean().backward()\n    makes.step()\n    see(maker, judge)",
    "def train(one, name):\n    named = dict(one.named_parameters(prefix=name))\n"
    "    two = hvd.DistributedOptimizer(sgd(one), named_parameters=named.items())\n"
    "    for _ in range(4):\n        two.zero_grad()\n        one(torch.ones(2, 5, dtype=torch.float64) * (rank + 1)).square().mean().backward()\n"
    "        two.step()\n\n"
    "ours = [mlp(), mlp()]\nside_by_side(lambda: train(ours[0], 'first'), lambda: train(ours[1], 'second'))\nsee(*ours)",
    "net = mlp()\nparts = {p: hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.1), named_parameters=[(name, p)]) "
    "for name, p in net.named_parameters()}\n\n"
    "def step_in_backward(p):\n    parts[p].step()\n    parts[p].zero_grad()\n\n"
    "handles = [p.register_post_accumulate_grad_hook(step_in_backward) for p in net.parameters()]\n"
    "for _ in range(4):\n    loss(net).backward()\n    see(net)\n"
    "for handle in handles:\n    handle.remove()\n"
    f"inner = sgd(net)\nopt = hvd.DistributedOptimizer(inner, {WRAPPED})",
    "for _ in range(4):\n    opt.zero_grad()\n    loss(net).backward()\n    before = [p.detach().clone() for p in net.parameters()]\n"
    "    with torch.no_grad():\n        for p in net.parameters():\n            if p.grad is not None:\n                p.sub_(p.grad, alpha=0.05)\n"
    "    opt.zero_grad()\n    loss(net).backward()\n    with torch.no_grad():\n        for p, old in zip(net.parameters(), before):\n            p.copy_(old)\n"
    "    opt.step()\n    see(net)",
    "average = torch.optim.swa_utils.AveragedModel(net)\nfor _ in range(3):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n"
    "    average.update_parameters(net)\nsee(average)",
    "inner = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3, history_size=2)\n"
    "opt = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters())\nx, y = batch()\n\n"
    "def closure():\n    opt.zero_grad()\n    value = ((net(x.to(trained(net)[0].dtype)) - y) ** 2).mean()\n    value.backward()\n    return value\n\n"
    "for _ in range(3):\n    opt.step(closure)\n    see(net)\n"
    f"inner = sgd(net)\nopt = hvd.DistributedOptimizer(inner, {WRAPPED})",
    "for _ in range(4):\n    opt.zero_grad()\n    slopes = torch.autograd.grad(loss(net), trained(net), create_graph=True, allow_unused=True)\n"
    "    (loss(net) + 0.1 * sum(g.square().sum() for g in slopes if g is not None)).backward()\n    opt.step()\n    see(net)",
    "for _ in range(4):\n    named = {name: p.detach() for name, p in net.named_parameters()}\n    x, y = batch()\n"
    "    slopes = torch.func.grad(lambda named: (torch.func.functional_call(net, named, x.to(trained(net)[0].dtype)) - y).square().mean())(named)\n"
    "    for name, p in net.named_parameters():\n        p.grad = slopes[name]\n    opt.step()\n    see(net)",
    "file = io.BytesIO()\ntorch.save({'net': net.state_dict(), 'opt': opt.state_dict()}, file)\n"
    "opt.zero_grad()\nloss(net).backward()\nopt.step()\nfile.seek(0)\nsaved = torch.load(file)\n"
    "net.load_state_dict(saved['net'])\nopt.load_state_dict(saved['opt'])\nsee(net)",
    "rest = trained(net)\nhalves = [hvd.DistributedOptimizer(torch.optim.SGD(part, lr=0.1)) for part in (rest[:2], rest[2:])]\n"
    "for _ in range(4):\n    for one in halves:\n        one.zero_grad()\n    loss(net).backward()\n    for one in halves:\n        one.step()\n    see(net)\n"
    f"del halves, one\ninner = sgd(net)\nopt = hvd.DistributedOptimizer(inner, {WRAPPED})",
    "def fail(gradient):\n    raise ZeroDivisionError\n\n"
    "for _ in range(3):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n"
    "handle = trained(net)[0].register_hook(fail)\nwith contextlib.suppress(ZeroDivisionError):\n    loss(net).backward()\n"
    "handle.remove()\nopt.zero_grad()\nloss(net).backward()\nopt.step()\nsee(net)",
    "def fail(gradient):\n    if rank == 0:\n        raise ZeroDivisionError\n\n"
    "for _ in range(3):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n"
    "handle = trained(net)[0].register_hook(fail)\nwith contextlib.suppress(ZeroDivisionError):\n    loss(net).backward()\n"
    "handle.remove()\nopt.zero_grad()\nloss(net).backward()\nopt.step()\nsee(net)",
    "for _ in range(4):\n    opt.zero_grad()\n    value = loss(net)\n    value.backward()\n"
    "    if float(hvd.allreduce(value.detach(), name='all')) > 1.5:\n        opt.step()\n    see(net)\nopt.zero_grad()",
    "def closure():\n    raise ZeroDivisionError\n\nwith contextlib.suppress(ZeroDivisionError):\n    opt.step(closure)\n"
    "for _ in range(3):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.step()\n    see(net)",
    "for _ in range(4):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.synchronize()\n    opt.synchronize()\n"
    "    with opt.skip_synchronize():\n        opt.step()\n    see(net)",
    "for _ in range(4):\n    opt.zero_grad()\n    loss(net).backward()\n    opt.synchronize()\n    loss(net).backward()\n    opt.step()\n    see(net)",
    "for _ in range(4):\n    opt.zero_grad()\n    loss(net).backward()\n    sums = [g.clone() for g in grads(net)]\n    net.zero_grad()\n"
    "    loss(net).backward()\n    for g, other in zip(grads(net), sums):\n        g.add_(other)\n    opt.step()\n    see(net)",
    "net.load_state_dict({name: p * 0.9 if p.is_floating_point() else p for name, p in net.state_dict().items()})\nsee(net)",
]
SPARSE_EPISODES = [
    text for text in EPISODES if "autograd.grad(" not in text and "LBFGS" not in text and "sub_(" not in text
]

NOT_REENTRANT = {
    text for text in BACKWARDS + MEANWHILE + CHANGES + EPISODES if "inputs=" in text or "autograd.grad(" in text
}

NOT_SPARSE = {
    text
    for text in EDITS + AFTER_WRAPPING + MEANWHILE
    if any(name in text for name in ("clip", "clamp", "numpy", "view", "sign", "set_", "_foreach"))
}


def block(head: str, lines: Sequence[str]) -> str:
    return head + "\n" + indent("\n".join(line for line in lines if line), "    ")


@dataclass
class Phase:
    head: str
    body: list[str]
    change: str = ""  # what comes before it

    def __str__(self) -> str:
        body = block(self.head, self.body) if self.head else "\n".join(self.body)
        return "\n".join(filter(None, (self.change, body)))


@dataclass
class Program:
    setup: list[str]
    phases: list[Phase] = field(default_factory=list)
    end: str = (
        "see(net)\nnote('kept', len(kept))\nfor gradients in kept:\n    for g in gradients:\n        note('kept', g)"
    )

    def __str__(self) -> str:
        return "\n".join([*filter(None, self.setup), *map(str, self.phases), self.end]) + "\n"


@st.composite
def bodies(draw: st.DrawFn, passes: int, scaled: bool, without: frozenset[str]) -> list[str]:
    """The statements of one step."""

    def one(table: Sequence[str], rarely: bool = False) -> str:
        if rarely and draw(st.integers(0, 3)) < 3:
            return ""
        return draw(st.sampled_from([line for line in table if line not in without] or [""]))

    body = [one(CLEARS)]
    if draw(st.integers(0, 7)) == 7:
        return [*body, one(CLOSURES), "see(net)"]
    backwards = [one(BACKWARDS[:-1]) for _ in range(passes)]
    if scaled:
        backwards = [BACKWARDS[-1]] * passes
    for backward in backwards:
        body += [backward, one(MEANWHILE, rarely=True)]
    reduced = draw(st.booleans())
    edited = draw(st.booleans())
    step = "scaler.step(opt)\nscaler.update()" if scaled else "opt.step()"
    if reduced:
        body.append("opt.synchronize()")
    if scaled and draw(st.booleans()):
        body.append("scaler.unscale_(opt)")
    if edited:
        body += [one(EDITS), one(MEANWHILE, rarely=True)]
    body.append(block("with opt.skip_synchronize():", [step]) if reduced else step)
    return [*body, "see(net)"]


@st.composite
def programs(draw: st.DrawFn, without: frozenset[str] = frozenset()) -> Program:
    """`without`: statements that are not drawn."""

    def one(table: Sequence[str], rarely: bool = False) -> str:
        if rarely and draw(st.integers(0, 2)) < 2:
            return ""
        return draw(st.sampled_from([line for line in table if line not in without] or [""]))

    net = one(NETS)
    if "reentrant=True" in net:
        without |= NOT_REENTRANT
    if "sparse=True" in net:
        without |= NOT_SPARSE
    optimizers = OPTIMIZERS
    if "sparse=True" in net:
        optimizers = SPARSE_OPTIMIZERS
    elif "odd" not in net:
        optimizers = OPTIMIZERS + REAL_OPTIMIZERS
    passes = draw(st.integers(1, 2))
    options = ", ".join(filter(None, (one(OPTIONS), f"backward_passes_per_step={passes}" if passes > 1 else "")))
    scaled = draw(st.integers(0, 7)) == 7 and "odd" not in net and "sparse=True" not in net
    program = Program(
        [
            f"passes = {passes}",
            f"net = {net}",
            f"inner = {one(optimizers)}",
            one(BEFORE_WRAPPING, rarely=True),
            f"opt = hvd.DistributedOptimizer({', '.join(filter(None, ('inner', options)))})",
            one(AFTER_WRAPPING, rarely=True),
            "scaler = torch.amp.GradScaler('cpu', init_scale=4.0)" if scaled else "",
        ]
    )
    for number in range(draw(st.integers(1, 3))):
        change = one(CHANGES) if number else ""
        if "passes = " in change:
            passes = 3 - passes
        body = draw(bodies(passes, scaled, without))
        if "scheduler = " in "".join(program.setup):
            body.append("scheduler.step()")
        if draw(st.integers(0, 3)) == 3:
            program.phases.append(Phase("", [one(SPARSE_EPISODES if "sparse=True" in net else EPISODES)], change))
        else:
            head = f"for _ in range({draw(st.integers(1, 4))}):"
            program.phases.append(Phase(head, body, change))
    return program
