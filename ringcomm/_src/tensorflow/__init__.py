"""The TensorFlow binding; `ringcomm.tensorflow` holds its public names."""
