"""The exceptions of ringcomm, and their meaning for the ranks that get them."""

from ringcomm._src.base.errors import *  # noqa: F403
from ringcomm._src.base.errors import __all__

for _name in __all__:  # tracebacks then show the public names
    globals()[_name].__module__ = __name__
