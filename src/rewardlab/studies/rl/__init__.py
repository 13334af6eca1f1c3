"""One docstring."""
