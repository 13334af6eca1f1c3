"""Converting a dataset: which rollouts are kept, how they are split, and writing that can be stopped at any time."""
