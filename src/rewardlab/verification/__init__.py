"""Verification: people check the labels of a dataset on a local page; needs the extra `serve`."""
