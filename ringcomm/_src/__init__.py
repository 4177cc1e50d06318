"""Private modules. The packages are layers: tests/unit/test_layers.py checks their order, and docs/architecture.md says
what each is for."""
