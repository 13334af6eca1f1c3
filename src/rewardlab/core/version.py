"""The version of rewardlab, in the one place that everything reads."""

__version__ = "0.1.0"
