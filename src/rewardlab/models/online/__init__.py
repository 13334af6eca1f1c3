"""Models at the other end of a line: OpenAI-compatible endpoints and rewardlab servers."""
