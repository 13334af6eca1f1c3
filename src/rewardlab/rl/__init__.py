"""Reinforcement learning from reward models: gymnasium wrapper, relabelling, diffusion steering, the RL experiment."""
