"""Training: from collected episodes to a checkpoint folder; needs torch (extra `train`)."""
