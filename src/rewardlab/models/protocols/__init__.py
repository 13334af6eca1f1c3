"""Protocols: what a vision-language model is shown and asked, and how its reply becomes a score."""
