"""Models whose weights are loaded here: vision-language and contrastive ones, on torch and transformers."""
