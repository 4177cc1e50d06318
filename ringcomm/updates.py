"""Update rules of parameter stores, which the ranks that store the parameters apply."""

from ringcomm._src.decentralized.updates import SGD, Adagrad, Adam, AdamW, RMSprop, Update

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Update"]
