"""Private modules. The packages are layers: docs/architecture.md describes each of them."""
