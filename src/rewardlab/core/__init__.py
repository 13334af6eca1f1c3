"""The nouns every other part is built on; imports nothing else of rewardlab."""
