"""The TensorFlow binding. Public names are in ringcomm.tensorflow."""
