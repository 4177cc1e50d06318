"""Trains a linear classifier on scikit-learn's handwritten digits, on ranks that are Ray actors.

    python examples/ray_digits.py --workers 2

Each rank computes the gradient of its shard of every global batch; gradients are averaged.
"""

import argparse

import ray

from ringcomm.ray import RayExecutor


def train(steps, batch=60):
    import torch
    from sklearn.datasets import load_digits

    import ringcomm.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    order = torch.Generator().manual_seed(1)  # identical on all ranks
    for _ in range(steps):
        mine = torch.randint(len(labels), (batch,), generator=order)[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
    accuracy = (model(images).argmax(1) == labels).float().mean().item()
    return hvd.rank(), accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    ray.init(num_cpus=options.workers)
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=options.workers)
    executor.start()
    for rank, accuracy in executor.run(train, args=[options.steps]):
        print(f"rank {rank}: accuracy {accuracy:.4f}")
    executor.shutdown()


if __name__ == "__main__":
    main()
