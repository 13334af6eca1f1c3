"""Fine-tuning of vision-language models to answer the 1-5 prompt, as RoboReward was trained."""
