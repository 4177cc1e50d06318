"""Rules by which a parameter store applies gradients: those of torch.optim, in native code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringcomm._src.core import _core

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Update"]


@dataclass(frozen=True)
class Update:
    """A rule and its options. The functions of this module create it.

    Every push may set new values of ``lr`` and the other options.

    Parameters
    ----------
    rule : str
        "sgd", "adam", "adagrad" or "rmsprop".
    options : Mapping[str, float]
        Hyperparameters by name.

    Examples
    --------
    >>> update = ringcomm.updates.SGD(lr=0.1)
    >>> update.rule, update.options["lr"]
    ('sgd', 0.1)
    """

    rule: str
    options: Mapping[str, float] = field(default_factory=dict)

    def core(self) -> _core.RuleOptions:
        return _core.RuleOptions(self.rule, **self.options)

    def text(self) -> str:
        """Returns the parts of the rule that must be equal on all ranks."""
        return f"{self.rule} with {self.core().states} states"


def SGD(
    lr: float = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> Update:
    """Returns the rule of ``torch.optim.SGD``, with the same arguments.

    Examples
    --------
    >>> ringcomm.updates.SGD(lr=0.1, momentum=0.9).options["momentum"]
    0.9
    """
    return Update("sgd", dict(locals()))


def Adam(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    maximize: bool = False,
    decoupled: bool = False,
) -> Update:
    """Returns the rule of ``torch.optim.Adam``, with the same arguments.

    ``decoupled``: weight decay as in AdamW. Source: Kingma and Ba, arXiv:1412.6980.

    Examples
    --------
    >>> ringcomm.updates.Adam(betas=(0.9, 0.99)).options["beta2"]
    0.99
    """
    given = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}
    return Update("adam", given | {"maximize": maximize, "decoupled": decoupled})


def AdamW(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    maximize: bool = False,
) -> Update:
    """Returns the rule of ``torch.optim.AdamW``, with the same arguments.

    Source: Loshchilov and Hutter, arXiv:1711.05101.

    Examples
    --------
    >>> ringcomm.updates.AdamW().options["weight_decay"]
    0.01
    """
    return Adam(lr, betas, eps, weight_decay, maximize, decoupled=True)


def Adagrad(
    lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0, eps: float = 1e-10, maximize: bool = False
) -> Update:
    """Returns the rule of ``torch.optim.Adagrad``, with the same arguments.

    Source: Duchi, Hazan and Singer, JMLR 12 (2011).

    Examples
    --------
    >>> ringcomm.updates.Adagrad().rule
    'adagrad'
    """
    return Update("adagrad", dict(locals()))


def RMSprop(
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    maximize: bool = False,
) -> Update:
    """Returns the rule of ``torch.optim.RMSprop`` that is not centred, with the same arguments.

    Examples
    --------
    >>> ringcomm.updates.RMSprop(momentum=0.5).options["momentum"]
    0.5
    """
    given = {"lr": lr, "beta2": alpha, "eps": eps, "weight_decay": weight_decay}
    return Update("rmsprop", given | {"momentum": momentum, "maximize": maximize})
