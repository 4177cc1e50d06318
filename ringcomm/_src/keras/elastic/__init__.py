"""Elastic training with Keras. Public names are in ringcomm.keras.elastic."""
