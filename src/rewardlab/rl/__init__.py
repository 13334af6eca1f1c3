"""Rewards for reinforcement learning: gymnasium wrappers around any model, and relabelled datasets."""
