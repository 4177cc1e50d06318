"""Trains a linear classifier on scikit-learn's digits, on the ranks of a Spark job's tasks.

    python examples/spark_digits.py --ranks 2        # or spark-submit

Each rank computes the gradient of its shard of every global batch; gradients are averaged.
"""

import argparse
import os
import sys

from pyspark.sql import SparkSession

import ringcomm.spark


def train(steps, batch=60):
    import numpy as np
    from sklearn.datasets import load_digits

    import ringcomm

    ringcomm.init()
    digits = load_digits()
    images, labels = np.float32(digits.data / 16), np.eye(10, dtype=np.float32)[digits.target]
    weights = ringcomm.broadcast(np.random.default_rng(ringcomm.rank()).normal(size=(64, 10)).astype(np.float32), 0)
    order = np.random.default_rng(1)  # identical on all ranks
    for _ in range(steps):
        mine = order.integers(len(labels), size=batch)[ringcomm.rank() :: ringcomm.size()]
        scores = np.exp(images[mine] @ weights)
        gradient = images[mine].T @ (scores / scores.sum(1, keepdims=True) - labels[mine]) / len(mine)
        weights -= ringcomm.allreduce(gradient, name="gradient")
    accuracy = ((images @ weights).argmax(1) == digits.target).mean()
    return ringcomm.rank(), float(accuracy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's tasks run in this environment
    spark = SparkSession.builder.master(f"local[{options.ranks}]").getOrCreate()
    for rank, accuracy in ringcomm.spark.run(train, args=(options.steps,), num_proc=options.ranks):
        print(f"rank {rank}: accuracy {accuracy:.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
