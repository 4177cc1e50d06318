"""Elastic training of PyTorch models: `run`, `TorchState`, and a sampler for parts of an epoch.

::

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for number, (x, y) in enumerate(loader):
                ...
                sampler.record_batch(number, batch_size)
                state.commit()
            sampler.set_epoch(state.epoch + 1)

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0))
"""

from ringcomm._src.torch.elastic import ElasticSampler, TorchState, run

__all__ = ["ElasticSampler", "TorchState", "run"]
