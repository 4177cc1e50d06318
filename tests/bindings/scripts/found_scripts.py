"""Regression tests: minimized scripts that the generator once found to fail."""

SCRIPTS = {
    "a dropped backward pass, then one of rank 0 alone": """
net = mlp()
opt = hvd.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters())
for _ in range(3):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    see(net)
net.zero_grad()
loss(net).backward()
net.zero_grad()
for _ in range(3):
    if rank == 0:
        loss(net).backward()
    opt.step()
    see(net)
    opt.zero_grad()
""",
    "a dropped backward pass, then one that reaches another layer first": """
net = heads()
opt = hvd.DistributedOptimizer(sgd(net))
for _ in range(3):
    net.zero_grad()
    value = loss(net)
    value = value + 0.01 * sum((p.abs() ** 2).sum() for p in net.parameters())
    value.backward()
    opt.step()
    see(net)
net.zero_grad()
loss(net).backward()
net.zero_grad()
for _ in range(3):
    loss(net).backward()
    opt.step()
    see(net)
    net.zero_grad()
""",
    "gradients changed in a hook, on the rank that has any": """
net = mlp()
opt = hvd.DistributedOptimizer(sgd(net), named_parameters=net.named_parameters())
for p in net.parameters():
    p.register_post_accumulate_grad_hook(grow)
for _ in range(4):
    opt.zero_grad(set_to_none=False)
    if rank == 0:
        loss(net).backward()
    opt.step()
    see(net)
opt.zero_grad()
loss(net).backward()
opt.zero_grad()
for _ in range(2):
    opt.zero_grad()
    loss(net).backward()
    opt.step()
    see(net)
""",
    "an optimizer at rest that expects fewer backward passes": """
net = mlp()
rest = hvd.DistributedOptimizer(sgd(net))
opt = wrap(torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3), net, 2)
for _ in range(4):
    opt.zero_grad()
    loss(net).backward()
    loss(net).backward()
    opt.step()
    see(net)
rest.zero_grad()
loss(net).backward()
rest.step()
see(net)
""",
}
