"""What is not public. The packages are layers; tests/unit/test_layers.py holds their order, and docs/architecture.md
says what each is for."""
