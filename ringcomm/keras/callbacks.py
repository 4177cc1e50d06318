"""Callbacks of ``fit``, under Horovod's module name."""

from ringcomm._src.keras.callbacks import (
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    ElasticAveragingCallback,
    GossipCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    OuterStepCallback,
    ParameterStoreCallback,
    PeriodicAveragingCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "ElasticAveragingCallback",
    "GossipCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "OuterStepCallback",
    "ParameterStoreCallback",
    "PeriodicAveragingCallback",
]
