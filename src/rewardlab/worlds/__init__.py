"""Worlds: simulators whose episodes carry the exact truth and can be rendered again with the scene changed."""
