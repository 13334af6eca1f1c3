"""Diffusion steering: SAC (Stable-Baselines3) that chooses the noise of a diffusion policy; plain SAC beside it.

After Wagenmaker et al. (2025). `dsrl` is their DSRL-SAC: the critic values noises. `dsrl-na` is their DSRL-NA: an
action critic values the chunks that were executed, a noise critic is distilled from it through the frozen policy, and
the actor maximises the noise critic. The defaults are those of RoboReward's Tables 5, 6 and 9, scaled to state and to
small networks; `PRESETS` in plan.py holds the tables themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.rl.diffusion_policy import DiffusionPolicy
from rewardlab.rl.rollouts import Control, Decide, Decision, PolicyEpisode

Numbers = NDArray[np.float32]
Algorithm = Literal["dsrl", "dsrl-na", "sac"]
_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")  # of the replay buffer


@dataclass(frozen=True)
class SacSettings:
    """SAC in the space of noises or of actions."""

    rate: float = 5e-4  # 3e-4 in Table 5, for many more updates; it falls to a tenth over the training
    batch: int = 256
    hidden: int = 128  # 2048 in Table 6, 1024 in Table 9
    layers: int = 2  # 3 in Table 5
    gradient_steps: int = 8  # per decision of each simulator; 20 to 30 per decision of all in Tables 6 and 9
    noise_critic_steps: int = 10  # of `dsrl-na`, per decision of all simulators
    discount: float = 0.99
    target_entropy: float = 0.0
    tau: float = 0.005
    magnitude: float = 1.5  # the largest noise that is chosen
    initial_episodes: int = 20  # of the base policy, before anything is learned

    def __post_init__(self) -> None:
        steps = (self.gradient_steps, self.noise_critic_steps, self.initial_episodes)
        counts = (self.batch, self.hidden, self.layers, *steps)
        if min(counts) < 1 or min(self.rate, self.tau, self.magnitude) <= 0 or not 0 < self.discount <= 1:
            raise PlanError(
                "batch, hidden, layers, gradient_steps, noise_critic_steps and initial_episodes must be at least 1, "
                "rate, tau and magnitude above 0, and discount in (0, 1]"
            )


class _Spaces(gymnasium.Env[Any, Any]):
    """The spaces of an environment that is stepped elsewhere; SAC needs nothing else of it."""

    def __init__(self, observation: int, action: int, magnitude: float) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation,), np.float32)
        self.action_space = gymnasium.spaces.Box(-magnitude, magnitude, (action,), np.float32)


class SteeredPolicy:
    """A policy that learns to choose the noise of a base policy (`dsrl`, `dsrl-na`) or the actions (`sac`)."""

    def __init__(
        self, base: DiffusionPolicy, algorithm: Algorithm, settings: SacSettings, control: Control, episodes: int
    ) -> None:
        from stable_baselines3 import SAC
        from stable_baselines3.common.logger import Logger

        self.base, self.algorithm, self.settings, self.control = base, algorithm, settings, control
        self.episodes = episodes
        magnitude = 1.0 if algorithm == "sac" else settings.magnitude
        spaces = _Spaces(len(base.mean) + 1, control.chunk_size, magnitude)
        network = {"net_arch": [settings.hidden] * settings.layers, "activation_fn": nn.Tanh}
        self.sac = SAC(
            "MlpPolicy",
            spaces,
            learning_rate=lambda left: settings.rate * max(left, 0.1),
            batch_size=settings.batch,
            tau=settings.tau,
            gamma=settings.discount,
            target_entropy=settings.target_entropy,
            buffer_size=max(episodes * control.decisions, settings.batch),
            policy_kwargs=network,
            device="cpu",
        )
        self.sac.set_logger(Logger(None, []))
        self.noise_critic = self.sac.policy.make_critic()  # of `dsrl-na`; its action critic is the critic of SAC
        self.noise_critic.optimizer = torch.optim.Adam(self.noise_critic.parameters(), lr=settings.rate)

    def explore(self, seed: int, number: int) -> Decide:
        """Return the decisions during training; before the first update they are those of the base policy."""
        rng = rng_for(seed, "explore", number)
        torch.manual_seed(int(rng.integers(2**31)))
        if self._learned_episodes >= self.settings.initial_episodes:
            return self._decide(lambda states: self._predict(states, deterministic=False))
        size, most = self.control.chunk_size, self.settings.magnitude
        if self.algorithm == "sac":
            return self._decide(lambda states: rng.uniform(-1, 1, (len(states), size)).astype(np.float32))
        return self._decide(
            lambda states: np.clip(rng.standard_normal((len(states), size)), -most, most).astype(np.float32)
        )

    def exploit(self) -> Decide:
        """Return the decisions in evaluation: the mean choice."""
        return self._decide(lambda states: self._predict(states, deterministic=True))

    def base_decisions(self, seed: int) -> Decide:
        """Return the decisions of the base policy alone, with Gaussian noise."""
        rng = rng_for(seed, "base policy")

        def decide(observations: Numbers, _number: int) -> Decision:
            noise = rng.standard_normal((len(observations), self.control.chunk_size)).astype(np.float32)
            return Decision(noise, self.base.act(observations, noise))

        return decide

    def learn(self, episodes: Sequence[PolicyEpisode], rewards: Sequence[float], seed: int, number: int) -> None:
        """Add the episodes, each with its reward at its end, to the replay buffer, and take their gradient steps."""
        last = self.control.decisions - 1
        for episode, reward in zip(episodes, rewards, strict=True):
            states = [self._state(seen[None], place) for place, seen in enumerate(episode.observations)]
            for place, choice in enumerate(episode.choices):
                # executed chunks are in [-1, 1] as they are
                executed = self.algorithm == "dsrl-na"
                scaled = choice[None] if executed else self.sac.policy.scale_action(choice[None])
                ended = np.array([place == last])
                given = np.array([reward if place == last else 0.0], np.float32)
                self.sac.replay_buffer.add(states[place], states[place + 1], scaled, given, ended, [{}])
        if self._learned_episodes < self.settings.initial_episodes:
            return
        rng = rng_for(seed, "learn", number)
        torch.manual_seed(int(rng.integers(2**31)))
        np.random.seed(int(rng.integers(2**31)))  # the replay buffer draws from it
        if not episodes:
            return
        self.sac._current_progress_remaining = 1 - number / self.episodes
        if self.algorithm == "dsrl-na":
            self._update_noise_aliased(len(episodes))
        else:
            steps = self.settings.gradient_steps * self.control.decisions * len(episodes)
            self.sac.train(steps, self.settings.batch)

    def state(self) -> dict[str, Any]:
        """Return weights, optimizers and the replay buffer."""
        buffer: Any = self.sac.replay_buffer
        arrays = {name: torch.as_tensor(vars(buffer)[name][: self._size].copy()) for name in _ARRAYS}
        temperature = self.sac.log_ent_coef.detach().clone()  # no part of what SAC calls its parameters
        own = {"sac": self.sac.get_parameters(), "temperature": temperature, "updates": self.sac._n_updates}
        noise = {"network": self.noise_critic.state_dict(), "optimizer": self.noise_critic.optimizer.state_dict()}
        return own | {"buffer": arrays} | ({"noise_critic": noise} if self.algorithm == "dsrl-na" else {})

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from such a state: the next episodes and gradient steps are exactly the same."""
        buffer: Any = self.sac.replay_buffer
        self.sac.set_parameters(state["sac"], device="cpu")
        self.sac.log_ent_coef.data.copy_(state["temperature"])
        for name, array in state["buffer"].items():
            vars(buffer)[name][: len(array)] = array.numpy()
        kept = len(state["buffer"]["rewards"])
        buffer.pos, buffer.full = kept % buffer.buffer_size, kept == buffer.buffer_size
        self.sac._n_updates = state["updates"]
        if self.algorithm == "dsrl-na":
            self.noise_critic.load_state_dict(state["noise_critic"]["network"])
            self.noise_critic.optimizer.load_state_dict(state["noise_critic"]["optimizer"])

    @property
    def _size(self) -> int:
        return int(self.sac.replay_buffer.size())

    @property
    def _learned_episodes(self) -> int:
        return self._size // self.control.decisions

    def _decide(self, choose: Callable[[Numbers], Numbers]) -> Decide:
        def decide(observations: Numbers, number: int) -> Decision:
            choices = choose(self._state(observations, number))
            chunks = choices if self.algorithm == "sac" else self.base.act(observations, choices)
            return Decision(choices if self.algorithm == "dsrl" else chunks, chunks)

        return decide

    def _update_noise_aliased(self, episodes: int) -> None:
        """Take the gradient steps of DSRL-NA: an update follows each decision of all simulators."""
        sac, steps = self.sac, self.settings.gradient_steps * episodes
        sac._update_learning_rate(
            [sac.actor.optimizer, sac.critic.optimizer, sac.ent_coef_optimizer, self.noise_critic.optimizer]
        )
        for _ in range(self.control.decisions):
            for _ in range(steps):
                self._learn_actions()
            self._distil()
        sac._n_updates += self.control.decisions * steps

    def _learn_actions(self) -> None:
        """Take one step of the temperature, the action critic and the actor, as in SAC.

        The next action is the chunk that the base policy makes of the actor's noise; the actor is valued by the noise
        critic, so that no gradient passes through the base policy.
        """
        from stable_baselines3.common.utils import polyak_update

        sac, batch = self.sac, self.sac.replay_buffer.sample(self.settings.batch)
        noise, log_prob = sac.actor.action_log_prob(batch.observations)
        temperature = sac.log_ent_coef.detach().exp()
        _descend(sac.ent_coef_optimizer, -(sac.log_ent_coef * (log_prob.detach() + sac.target_entropy)).mean())
        with torch.no_grad():
            next_noise, next_log_prob = sac.actor.action_log_prob(batch.next_observations)
            next_chunks = self._denoise(batch.next_observations, next_noise)
            following = _least(sac.critic_target(batch.next_observations, next_chunks))
            following -= temperature * next_log_prob.reshape(-1, 1)
            target = batch.rewards + (1 - batch.dones) * self.settings.discount * following
        values = sac.critic(batch.observations, batch.actions)
        _descend(sac.critic.optimizer, _error(values, [target] * len(values)))
        value = _least(self.noise_critic(batch.observations, noise))
        _descend(sac.actor.optimizer, (temperature * log_prob.reshape(-1, 1) - value).mean())
        polyak_update(sac.critic.parameters(), sac.critic_target.parameters(), self.settings.tau)

    def _distil(self) -> None:
        """Fit the noise critic to the action critic's values of the chunks made of Gaussian noise."""
        batch = self.settings.batch
        seen = self.sac.replay_buffer.sample(batch * self.settings.noise_critic_steps).observations
        noise = torch.randn(len(seen), self.control.chunk_size) / self.settings.magnitude
        with torch.no_grad():  # of all batches at once: the action critic does not change meanwhile
            values = torch.stack(self.sac.critic(seen, self._denoise(seen, noise)), dim=1)
        for states, noises, targets in zip(seen.split(batch), noise.split(batch), values.split(batch), strict=True):
            _descend(self.noise_critic.optimizer, _error(self.noise_critic(states, noises), targets.unbind(1)))

    def _denoise(self, states: Tensor, noise: Tensor) -> Tensor:
        """Return the chunks of what SAC sees and of noises as its networks take them, scaled to [-1, 1]."""
        return self.base.denoise(states[:, :-1], noise * self.settings.magnitude)

    def _predict(self, states: Numbers, *, deterministic: bool) -> Numbers:
        return np.asarray(self.sac.predict(states, deterministic=deterministic)[0], np.float32)

    def _state(self, observations: Numbers, number: int) -> Numbers:
        """Return what SAC sees: the observation as the base policy takes it, and how much of the episode is over."""
        over = np.full((len(observations), 1), 2 * number / self.control.decisions - 1, np.float32)
        return np.concatenate([self.base.normalised(observations).numpy(), over], axis=1)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _least(values: Sequence[Tensor]) -> Tensor:
    """Return the smallest value of several critics."""
    return torch.cat(tuple(values), dim=1).min(dim=1, keepdim=True).values


def _error(values: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return half the squared error of each critic to its own target, summed over critics."""
    errors = [nn.functional.mse_loss(value, target) for value, target in zip(values, targets, strict=True)]
    return 0.5 * torch.stack(errors).sum()
