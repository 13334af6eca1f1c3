"""The simulated study of the perturbation paper: what it states, what its equation gives, and what sampling gives."""
