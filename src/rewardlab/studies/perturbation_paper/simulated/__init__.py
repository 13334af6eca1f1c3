"""The simulated study of the first paper: what it states, what its equation gives, and what sampling gives."""
