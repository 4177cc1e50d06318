"""The module `ringcomm.keras` under the name of ``horovod.tensorflow.keras``."""

import sys

from ringcomm import keras
from ringcomm._src.keras import callbacks
from ringcomm.keras import elastic

sys.modules[__name__ + ".callbacks"] = callbacks
sys.modules[__name__ + ".elastic"] = elastic
sys.modules[__name__] = keras
