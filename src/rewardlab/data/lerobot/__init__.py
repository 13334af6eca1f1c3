"""LeRobot datasets, v2.0, v2.1 and v3.0, read without the lerobot package."""
