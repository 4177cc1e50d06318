"""Registered algorithms, the model that chooses among them, and its measured parameters."""
