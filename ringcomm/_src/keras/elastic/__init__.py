"""Elastic training with Keras; `ringcomm.keras.elastic` holds the public names."""
