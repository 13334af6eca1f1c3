"""rewardlab: find out when a vision-language reward for robots may be trusted."""

__version__ = "0.1.0"
