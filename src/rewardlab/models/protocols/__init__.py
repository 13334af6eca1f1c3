"""Models that answer in words: what they are asked, how answers are read, and protocols built on talking."""
