"""The exercises of the notebooks in examples/teaching, their checker, drawings and predictions."""
