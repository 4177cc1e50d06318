"""Self-contained sections of scripts. `user_statements.py` has the single statements."""

from __future__ import annotations

from user_statements import statements

EPISODES = statements("""
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    opt.step()
    see(net)

for _ in range(2 + rank):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    see(net)
hvd.join()
hvd.broadcast_parameters(net.state_dict(), root_rank=size - 1)
hvd.broadcast_optimizer_state(opt, root_rank=size - 1)
opt.zero_grad()

maker, judge = mlp(), nn.Linear(2, 1).double()
makes = hvd.DistributedOptimizer(sgd(maker), named_parameters=maker.named_parameters(prefix='maker'))
judges = hvd.DistributedOptimizer(sgd(judge), named_parameters=judge.named_parameters(prefix='judge'))
for _ in range(4):
    made = maker(batch()[0])
    judges.zero_grad()
    judge(made.detach()).square().mean().backward()
    judges.step()
    makes.zero_grad()
    (judge(made) - 1).square().mean().backward()
    makes.step()
    see(maker, judge)

def train(one, name):
    named = dict(one.named_parameters(prefix=name))
    two = hvd.DistributedOptimizer(sgd(one), named_parameters=named.items())
    for _ in range(4):
        two.zero_grad()
        one(torch.ones(2, 5, dtype=torch.float64) * (rank + 1)).square().mean().backward()
        two.step()
ours = [mlp(), mlp()]
side_by_side(lambda: train(ours[0], 'first'), lambda: train(ours[1], 'second'))
see(*ours)

net = mlp()
parts = {}
for name, p in net.named_parameters():
    parts[p] = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.1), named_parameters=[(name, p)])
def step_in_backward(p):
    parts[p].step()
    parts[p].zero_grad()
handles = [p.register_post_accumulate_grad_hook(step_in_backward) for p in net.parameters()]
for _ in range(4):
    loss(net).backward()
    see(net)
for handle in handles:
    handle.remove()
inner = sgd(net)
opt = wrap(inner, net, passes)

for _ in range(4):
    opt.zero_grad()
    loss(net).backward()
    opt.synchronize()
    before = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            if p.grad is not None:
                p.sub_(p.grad, alpha=0.05)
    opt.zero_grad()
    loss(net).backward()
    with torch.no_grad():
        for p, old in zip(net.parameters(), before):
            p.copy_(old)
    opt.step()
    see(net)

average = torch.optim.swa_utils.AveragedModel(net)
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    average.update_parameters(net)
see(average)

inner = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3, history_size=2)
opt = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters())
x, y = batch()
def closure():
    opt.zero_grad()
    value = ((net(x.to(trained(net)[0].dtype)) - y) ** 2).mean()
    value.backward()
    return value
for _ in range(3):
    opt.step(closure)
    see(net)
inner = sgd(net)
opt = wrap(inner, net, passes)

opt = hvd.LocalSGD(sgd(net), every=2, named_parameters=net.named_parameters())
for _ in range(5):
    opt.zero_grad()
    (loss(net) * (rank + 1)).backward()
    opt.step()
    see(net)
opt.finish()
see(net)
inner = sgd(net)
opt = wrap(inner, net, passes)

for _ in range(4):
    opt.zero_grad()
    slopes = torch.autograd.grad(loss(net), trained(net), create_graph=True, allow_unused=True)
    (loss(net) + 0.1 * sum(g.square().sum() for g in slopes if g is not None)).backward()
    opt.step()
    see(net)

for _ in range(4):
    named = {name: p.detach() for name, p in net.named_parameters()}
    x, y = batch()
    x = x.to(trained(net)[0].dtype)
    slopes = torch.func.grad(lambda named: (torch.func.functional_call(net, named, x) - y).square().mean())(named)
    for name, p in net.named_parameters():
        p.grad = slopes[name]
    opt.step()
    see(net)

file = io.BytesIO()
torch.save({'net': net.state_dict(), 'opt': opt.state_dict()}, file)
opt.zero_grad()
loss(net).backward()
opt.step()
file.seek(0)
saved = torch.load(file)
net.load_state_dict(saved['net'])
opt.load_state_dict(saved['opt'])
see(net)

rest = trained(net)
halves = [hvd.DistributedOptimizer(torch.optim.SGD(part, lr=0.1)) for part in (rest[:2], rest[2:])]
for _ in range(4):
    for one in halves:
        one.zero_grad()
    loss(net).backward()
    for one in halves:
        one.step()
    see(net)
del halves, one
inner = sgd(net)
opt = wrap(inner, net, passes)

def fail(gradient):
    raise ZeroDivisionError
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
handle = trained(net)[0].register_hook(fail)
with contextlib.suppress(ZeroDivisionError):
    loss(net).backward()
handle.remove()
opt.zero_grad()
loss(net).backward()
opt.step()
see(net)

def fail(gradient):
    if rank == 0:
        raise ZeroDivisionError
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
handle = trained(net)[0].register_hook(fail)
with contextlib.suppress(ZeroDivisionError):
    loss(net).backward()
handle.remove()
opt.zero_grad()
loss(net).backward()
opt.step()
see(net)

for _ in range(4):
    opt.zero_grad()
    value = loss(net)
    value.backward()
    if float(hvd.allreduce(value.detach(), name='all')) > 1.5:
        opt.step()
        see(net)
opt.zero_grad()

def closure():
    raise ZeroDivisionError
with contextlib.suppress(ZeroDivisionError):
    opt.step(closure)
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    see(net)

for _ in range(4):
    opt.zero_grad()
    loss(net).backward()
    opt.synchronize()
    opt.synchronize()
    with opt.skip_synchronize():
        opt.step()
    see(net)

for _ in range(4):
    opt.zero_grad()
    loss(net).backward()
    opt.synchronize()
    loss(net).backward()
    opt.step()
    see(net)

for _ in range(4):
    opt.zero_grad()
    loss(net).backward()
    opt.synchronize()
    sums = [g.clone() for g in grads(net)]
    net.zero_grad()
    loss(net).backward()
    for g, other in zip(grads(net), sums):
        g.add_(other)
    opt.step()
    see(net)

net.load_state_dict({name: p * 0.9 if p.is_floating_point() else p for name, p in net.state_dict().items()})
see(net)
""")
