"""The vision-language models of the package: transformers on this machine, and OpenAI-compatible servers."""
