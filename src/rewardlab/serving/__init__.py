"""Serving: rewards over HTTP for a running robot; needs the extra `serve`."""
