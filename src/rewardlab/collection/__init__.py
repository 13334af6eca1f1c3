"""Collecting rollouts of every quality as datasets."""
