"""The Keras binding. Public names are in ringcomm.keras."""
