"""The Keras binding; `ringcomm.keras` holds its public names."""
