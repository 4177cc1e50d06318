"""The exceptions of ringcomm, and what each means for the ranks that get it."""

from ringcomm._src.base.errors import *  # noqa: F403
from ringcomm._src.base.errors import __all__

for _name in __all__:  # tracebacks name them as users import them
    globals()[_name].__module__ = __name__
