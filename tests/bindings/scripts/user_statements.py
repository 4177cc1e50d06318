"""Statements of drawn scripts. Simple ones are first: hypothesis shrinks to them."""

from __future__ import annotations

import ast


def statements(text: str) -> list[str]:
    """Returns the statements of a text in which blank lines separate them."""
    found = text.strip("\n").split("\n\n")
    for one in found:
        ast.parse(one)
    return found


NETS = statements("""
mlp()

wide()

tied()

heads()

normed()

odd()

checkpointed(reentrant=False)

checkpointed(reentrant=True)

words(sparse=False)

words(sparse=True)

synced()
""")

OPTIMIZERS = statements("""
torch.optim.SGD(net.parameters(), lr=0.1)

torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

torch.optim.SGD([{'params': trained(net)[:2]}, {'params': trained(net)[2:], 'lr': 0.03}], lr=0.1)

torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True)

torch.optim.SGD(net.parameters(), lr=0.1, maximize=True, foreach=False)

torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3)

torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3, foreach=True, amsgrad=True)

torch.optim.AdamW(net.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)

torch.optim.RMSprop(net.parameters(), lr=0.01, eps=1e-2, momentum=0.5)

torch.optim.Adagrad(net.parameters(), lr=0.1, eps=1e-3)

torch.optim.NAdam(net.parameters(), lr=0.01, eps=1e-3)
""")

# These optimizers take no complex parameters.
REAL_OPTIMIZERS = statements("""
torch.optim.SGD(net.parameters(), lr=0.1, fused=True)

torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3, fused=True)

torch.optim.ASGD(net.parameters(), lr=0.1)
""")

SPARSE_OPTIMIZERS = statements("""
torch.optim.SGD(net.parameters(), lr=0.1)

torch.optim.Adagrad(net.parameters(), lr=0.1, eps=1e-3)
""")

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
    "compression=hvd.Compression.fp16",
    "compression=hvd.Compression.bf16",
    "named_parameters=net.named_parameters(), compression=Doubled",
]

BEFORE_WRAPPING = [
    "",
    *statements("""
trained(net)[0].register_hook(lambda g: g * (rank + 1))

for p in net.parameters():
    p.register_post_accumulate_grad_hook(halve)

net.register_full_backward_hook(lambda module, inputs, outputs: None)

scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, 0.5)

hvd.broadcast_parameters(net.state_dict(), root_rank=0)

torch.nn.init.normal_(list(net.parameters())[0], generator=torch.Generator().manual_seed(rank))
hvd.broadcast_parameters(net.state_dict(), root_rank=0)

list(net.parameters())[0].requires_grad_(False)

inner.register_step_post_hook(lambda *_: None)

loss(net).backward()

net = copy.deepcopy(net)
inner = sgd(net)

net.compile(backend='aot_eager')
"""),
]

AFTER_WRAPPING = [
    "",
    *statements("""
trained(net)[0].register_hook(lambda g: g.clamp(-0.01, 0.02))

for p in net.parameters():
    p.register_post_accumulate_grad_hook(grow)

opt.register_step_pre_hook(lambda *_: clip(net))

scheduler = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)

hvd.broadcast_optimizer_state(opt, root_rank=0)

shadow = copy.deepcopy(net)

other = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3)
other = hvd.DistributedOptimizer(other, named_parameters=net.named_parameters())

loss(net).backward()
opt.zero_grad()

opt.zero_grad()
loss(net).backward()
for p in net.parameters():
    p.grad = None
"""),
]

CLEARS = [
    "",
    *statements("""
opt.zero_grad()

net.zero_grad()

opt.zero_grad(set_to_none=False)

net.zero_grad(set_to_none=False)

for p in net.parameters():
    p.grad = None

for p in net.parameters():
    if p.grad is not None:
        p.grad.zero_()

for p in net.parameters():
    if p.grad is not None:
        p.grad = torch.zeros_like(p.grad)
"""),
]

BACKWARDS = statements("""
loss(net).backward()

torch.autograd.backward([loss(net), 0.5 * loss(net)])

if rank == 0:
    loss(net).backward()

(loss(net) * (rank + 1)).backward()

value = loss(net)
value.backward(inputs=trained(net)[:2])

value = loss(net)
value.backward(retain_graph=True)
note('finite', bool(torch.isfinite(value)))

wanted = trained(net)
for p, g in zip(wanted, torch.autograd.grad(loss(net), wanted, allow_unused=True)):
    p.grad = g

for p in net.parameters():
    p.grad = torch.full_like(p, rank + 1.0) if p.requires_grad else None

thread = threading.Thread(target=lambda: loss(net).backward())
thread.start()
thread.join()

with torch.autograd.detect_anomaly(check_nan=False):
    loss(net).backward()

x, y = batch()
with torch.autograd.graph.save_on_cpu():
    loss(net).backward()

value = loss(net)
value = value + 0.01 * sum((p.abs() ** 2).sum() for p in net.parameters())
value.backward()

value = hvd.allreduce(loss(net).detach(), name='loss')
note('loss', value)
loss(net).backward()

with contextlib.suppress(ZeroDivisionError):
    loss(net).backward()
    1 / 0

hvd.allreduce(loss(net), name='shared').backward()

hvd.allreduce(loss(net), name='total', op=hvd.Sum).backward()

made = net(batch()[0].to(trained(net)[0].dtype))
(hvd.allgather(made, name='made') - 1).square().mean().backward()

made = net(batch()[0].to(trained(net)[0].dtype)).mean(0)
(made - hvd.broadcast(made, root_rank=size - 1, name='aim') + 1).square().mean().backward()

scaled = scaler.scale(loss(net))
scaled.backward()
""")

# Statements between backward and step that change no gradient.
MEANWHILE = [
    "",
    *statements("""
norm = float(sum(g.norm() for g in grads(net)))

torch.autograd.grad(loss(net), trained(net), allow_unused=True)

if rank == 0:
    torch.autograd.grad(loss(net), trained(net), allow_unused=True)

with torch.no_grad():
    note('value', loss(net))

if rank == 0:
    net.eval()
    loss(net).detach()
    net.train()

copy.deepcopy(net)

torch.save(net.state_dict(), io.BytesIO())

copy.deepcopy(opt.state_dict())

note('mean', hvd.allreduce(torch.tensor(float(rank)), name='mean'))

with torch.no_grad():
    for p in net.parameters():
        p.mul_(0.99)

for p in net.parameters():
    p.data.mul_(0.99)

hvd.barrier()

[g.numpy(force=True).sum() for g in grads(net)]

loss(net)
"""),
]

# Changes of gradients. Without synchronize() before them, they change this rank's gradients only.
EDITS = statements("""
torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)

real = [p for p in net.parameters() if p.grad is not None and not p.is_complex()]
if real:
    torch.nn.utils.clip_grad_value_(real, 0.02)

for g in grads(net):
    g.mul_(0.5)

for g in grads(net):
    g.mul_(rank + 1)

if rank == 0:
    for g in grads(net):
        g.mul_(2)

torch._foreach_mul_([*grads(net), torch.ones(1)], 0.5)

for p in net.parameters():
    if p.grad is not None:
        p.grad = p.grad * 0.5

for g in grads(net):
    g.data.mul_(0.5)

for g in grads(net):
    g.data.mul_(1 + rank)

if rank == 0:
    for g in grads(net):
        (torch.view_as_real(g.data) if g.is_complex() else g.data).clamp_(-0.01, 0.01)

for g in grads(net):
    g.data = g.data * 0.5

for g in grads(net):
    g.detach().mul_(0.5)

for g in grads(net):
    g.detach().numpy(force=False)[...] *= 0.5

for g in grads(net):
    if g.numel():
        g.data[(0,) * g.dim()] = rank

for g in grads(net):
    g.copy_(torch.sign(g.real))

for g in grads(net)[:1]:
    g.zero_()

for p in list(net.parameters())[:1]:
    p.grad = None

if rank == 0:
    for p in list(net.parameters())[:1]:
        p.grad = None

for p in net.parameters():
    if p.grad is not None:
        p.grad.set_(p.grad * 2)
""")

AFTER_STEPS = ["", "kept.append(grads(net))\nnet.zero_grad()", "norms = [float(g.norm()) for g in grads(net)]"]

# Replacements for a step.
CLOSURES = statements("""
def closure():
    opt.zero_grad()
    value = loss(net)
    value.backward()
    return value
opt.step(closure)

def closure():
    return loss(net).detach()
opt.step(closure)

def closure():
    value = loss(net)
    value.backward()
    return value
opt.step(closure)
""")

# Statements between phases.
CHANGES = [
    "",
    *statements("""
for group in opt.param_groups:
    group['lr'] *= 0.5

list(net.parameters())[0].requires_grad_(False)

for p in net.parameters():
    p.requires_grad_(True)

opt.load_state_dict(copy.deepcopy(opt.state_dict()))

net.load_state_dict(copy.deepcopy(net.state_dict()))

hvd.broadcast_parameters(net.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(opt, root_rank=0)

extra = nn.Linear(2, 2).to(trained(net)[0].dtype)
net = nn.Sequential(net, extra)
opt.add_param_group({'params': list(extra.parameters())})

extra = nn.Linear(2, 2).to(trained(net)[0].dtype)
net = nn.Sequential(net, extra)
inner.add_param_group({'params': list(extra.parameters())})

extra = nn.Linear(2, 2).to(trained(net)[0].dtype)
net = nn.Sequential(net, extra)
opt.param_groups[0]['params'] += list(extra.parameters())

p = opt.param_groups[-1]['params'].pop()
p.requires_grad_(False)
p.grad = None

net.double()

net.float()

inner = sgd(net)
opt = wrap(inner, net, passes)

net = copy.deepcopy(net)
inner = sgd(net)
opt = wrap(inner, net, passes)

opt.zero_grad()
loss(net).backward()
opt.zero_grad()

loss(net).backward()
net.zero_grad()

(g,) = torch.autograd.grad(loss(net), trained(net)[:1], create_graph=True, allow_unused=True)

for p in net.parameters():
    p.data = p.data.clone()

trained(net)[-1].register_hook(lambda g: g * 2)

for p in net.parameters():
    p.register_post_accumulate_grad_hook(halve)

opt.step()

opt.synchronize()

scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
scheduler.step()

net, opt = copy.deepcopy((net, opt))
inner = opt

net, opt = pickle.loads(pickle.dumps((net, opt)))
inner = opt

passes = 3 - passes
opt.set_backward_passes_per_step(passes)

net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)
inner = sgd(net)
opt = wrap(inner, net, passes)
"""),
]
