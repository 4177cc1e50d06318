"""The module `ringcomm.keras` under the name that scripts written for ``horovod.tensorflow.keras`` import."""

import sys

from ringcomm import keras
from ringcomm._src.keras import callbacks
from ringcomm.keras import elastic

sys.modules[__name__ + ".callbacks"] = callbacks
sys.modules[__name__ + ".elastic"] = elastic
sys.modules[__name__] = keras
