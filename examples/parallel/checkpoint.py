"""Writes a checkpoint of sharded weights, a part per rank, and reads it on any number of ranks.

ringrun -np 4 python examples/parallel/checkpoint.py --save FOLDER
ringrun -np 2 python examples/parallel/checkpoint.py --load FOLDER
"""

import argparse

import torch
import torch.distributed.checkpoint as checkpoint
from common import alone, compare, model, share, start, train
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--save", metavar="FOLDER")
parser.add_argument("--load", metavar="FOLDER")
options = parser.parse_args()

rank, size = start()
net = fully_shard(model(), mesh=init_device_mesh("cpu", (size,)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
if options.load:
    weights, states = get_state_dict(net, optimizer)
    checkpoint.load({"weights": weights, "states": states}, checkpoint_id=options.load)
    set_state_dict(net, optimizer, model_state_dict=weights, optim_state_dict=states)
else:
    train(net, optimizer, lambda whole: share(whole, rank, size))
    weights, states = get_state_dict(net, optimizer)
    if options.save:
        checkpoint.save({"weights": weights, "states": states}, checkpoint_id=options.save)
got = {name: one.full_tensor() for name, one in net.state_dict().items()}
compare(got, alone(torch.optim.Adam, 0.01).state_dict(), 1e-4)
