"""Studies of papers, one folder a paper."""
