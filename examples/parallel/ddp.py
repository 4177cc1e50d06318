"""Data parallelism: every rank has the model and a shard; backward averages the gradients.

    ringrun -np 2 python examples/parallel/ddp.py

With --compression, buckets are sent between hosts in a wire format (within a host, ringcomm encodes
nothing).
"""

import argparse

import torch
from common import alone, compare, model, share, start, train
from torch.nn.parallel import DistributedDataParallel

from ringcomm.torch.distributed import compression_hook

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--compression", help="a wire format: int8, bfloat16, onebit, ...")
options = parser.parse_args()

rank, size = start()
net = DistributedDataParallel(model(), gradient_as_bucket_view=True)
if options.compression:
    net.register_comm_hook(None, compression_hook(options.compression))
train(net, torch.optim.SGD(net.parameters(), lr=0.1), lambda whole: share(whole, rank, size))
within = 0.05 if options.compression else 1e-5
compare(net.module.state_dict(), alone().state_dict(), within)
