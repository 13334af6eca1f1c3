"""The guard: MODEL+FOLDER with a guard.json withholds successes that the model is likely to be wrong about."""
