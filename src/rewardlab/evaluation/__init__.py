"""The runner: from a plan to scored trials in a run folder, and from trials to a summary."""
