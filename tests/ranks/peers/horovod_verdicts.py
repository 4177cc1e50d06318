"""Horovod's tests that do not run on ringcomm, with the reasons. horovod_suite.py skips them."""

from __future__ import annotations

import fnmatch

DIFFERENT = {  # deliberate differences of ringcomm (docs/migrating-from-horovod.md)
    "*.test_horovod_join_allgather": "join works with every operation, where Horovod refuses",
    "*.test_horovod_join_broadcast": "join works with every operation, where Horovod refuses",
    "*.test_horovod_join_alltoall": "join works with every operation, where Horovod refuses",
    "*.test_horovod_join_reducescatter": "join works with every operation, where Horovod refuses",
    "*.test_broadcast_state_no_grad": "broadcast_optimizer_state takes no step, so it leaves no gradients",
    "*_duplicate_name_error": "the first operation has ended when the second is submitted: there is no cycle",
    "*.test_horovod_allreduce_process_set_id_error": "a set without this rank is a ValueError",
}
NOT_TODAY = {  # tests that need versions of packages that are no longer available
    "test_keras.*": "TensorFlow 1",
    "test_compute_worker.*": "horovod.tensorflow.data: the data service for Spark",
    "test_torch.test_broadcast_state": "an optimizer class of torch that takes any parameters: Muon takes matrices",
    "test_torch.test_broadcast_state_options": "an optimizer class of torch that takes any parameters",
    "test_torch.test_force_allreduce": "an optimizer class of torch that takes any parameters: Muon takes matrices",
    "*.test_horovod_reducescatter_grad_cpu*": "NumPy 1: it compares float16 0.0 with 1e-8, which NumPy 2 rounds to 0.0",
    "*.test_horovod_grouped_reducescatter_grad_cpu*": "NumPy 1: it compares float16 0.0 with 1e-8",
    "test_tensorflow2_keras.test_broadcast_global_variables_callback_with_local_vars": "Keras 2: Variable.ref",
    "test_tensorflow2_keras_process_sets.test_process_set_optimizer": "Keras 2: an optimizer without learning rate",
    "test_tensorflow2_keras.test_gradient_aggregation*": "Keras 2: an optimizer without learning rate",
    "test_tensorflow2_keras.test_grad_aggregation_with_inf_grad": "Keras 2: Optimizer._compute_gradients",
    "test_tensorflow2_keras.test_partial_distributed_optimizer": "Keras 2: Optimizer._compute_gradients",
    "test_tensorflow.test_horovod_syncbn_cpu": "Keras 2: BatchNormalization(fused=False)",
    "test_tensorflow.test_partial_distributed_gradient_tape": "Keras 2: Variable.ref",
    "test_tensorflow2_keras.test_legacy_optimizer": "Keras 2: keras.optimizers.legacy",
    "test_tensorflow2_keras.test_sparse_as_dense*": "Keras 2: RMSprop(lr=...)",
    "test_tensorflow2_keras.test_train_model_lr_schedule": "Keras 2: keras.losses.mean_squared_error",
}


def verdict(module: str, test: str) -> str:
    """Returns why a test is skipped; "" if it runs."""
    name = f"{module.removesuffix('.py')}.{test}"
    for table, what in ((DIFFERENT, "different"), (NOT_TODAY, "needs")):
        for pattern, reason in table.items():
            if fnmatch.fnmatch(name, pattern):
                return f"{what}: {reason}"
    return ""
