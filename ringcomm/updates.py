"""Update rules of parameter stores, which run where the parameters are."""

from ringcomm._src.decentralized.updates import SGD, Adagrad, Adam, AdamW, RMSprop, Update

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Update"]
