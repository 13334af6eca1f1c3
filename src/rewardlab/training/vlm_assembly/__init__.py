"""Vision-language models put together from a vision tower and a language model; needs torch and transformers."""
