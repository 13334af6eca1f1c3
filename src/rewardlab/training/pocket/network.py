"""The networks and their losses."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rewardlab.models.pocket.inference import CLIP_FRAMES, MAX_PIECES
from rewardlab.training.encoders import WIDTH as EYES_WIDTH
from rewardlab.training.encoders import WORD_VECTOR_WIDTH
from rewardlab.worlds.metaworld.instructions import CAPTION_WORDS

LEVELS = 5
DISPLACEMENTS = 7  # how far the object and the gripper have moved along three axes, and the distance between them


@dataclass(frozen=True)
class NetworkConfig:
    """The size of a network, the same for every variant."""

    size: int = 112
    channels: tuple[int, int, int, int] = (16, 32, 64, 128)
    width: int = 192
    layers: int = 3
    dropout: float = 0.1

    @property
    def tokens_per_frame(self) -> int:
        return (self.size // 16) ** 2


# The order in which layers are created is the order in which seeded weights are drawn: keep it.


class Attention(nn.Module):
    """Multi-head attention written out, so that every exporter and every backend computes the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attended values, (B, queries, width); the mask is added to the scores."""
        parts = [self._split(layer(x)) for layer, x in ((self.query, queries), (self.key, keys), (self.value, keys))]
        scores = parts[0] @ parts[1].transpose(-1, -2) * (queries.shape[-1] // self.heads) ** -0.5
        if mask is not None:
            scores = scores + mask
        return (scores.softmax(-1) @ parts[2]).transpose(1, 2).flatten(2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class TransformerBlock(nn.Module):
    """A pre-norm transformer layer: attention, then an MLP."""

    def __init__(self, width: int, heads: int, dropout: float, expansion: int = 2) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = Attention(width, heads), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.attention_norm(x)
        x = x + self.dropout(self.projection(self.attention(y, y, mask)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class ResidualBlock(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels, 1), nn.ReLU(), _conv(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class ConvImageEncoder(nn.Module):
    """Convolutions that end at a sixteenth of the frame's side."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        a, b, c, d = config.channels
        layers: list[nn.Module] = [_conv(3, a, 2), nn.ReLU(), _conv(a, b, 2), nn.ReLU(), ResidualBlock(b)]
        layers += [_conv(b, c, 2), nn.ReLU(), ResidualBlock(c), ResidualBlock(c)]
        layers += [_conv(c, d, 2), nn.ReLU(), ResidualBlock(d), ResidualBlock(d)]
        self.body = nn.Sequential(*layers)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the image tokens of frames given as uint8 (N, H, W, 3)."""
        x: Tensor = self.body((frames.permute(0, 3, 1, 2).float() - 110.0) / 60.0)
        return x.flatten(2).transpose(1, 2)


class TextAttentionPool(nn.Module):
    """Pools the tokens of a frame with eight attention heads whose queries come from the text."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.heads = 8
        self.query, self.key = nn.Linear(width, channels), nn.Linear(channels, channels)

    def forward(self, text: Tensor, tokens: Tensor) -> Tensor:
        """Return (B, frames, 8 x channels) for texts (B, width) and tokens (B, frames, tokens, channels)."""
        keys = self.key(tokens).unflatten(3, (self.heads, -1)).permute(0, 1, 3, 2, 4)
        query = self.query(text).unflatten(1, (self.heads, 1, -1))[:, None]
        scores = (keys * query).sum(-1) * (tokens.shape[-1] // self.heads) ** -0.5
        return (scores.softmax(-1) @ tokens).flatten(2)


class TemporalEncoder(nn.Module):
    """From the image tokens of 16 frames and the word vectors to progress and levels after every frame."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        width, channels = config.width, config.channels[3]
        self.word_projection = nn.Linear(WORD_VECTOR_WIDTH, width)
        self.word_positions = nn.Parameter(torch.randn(1, MAX_PIECES, width) * 0.02)
        self.text_layers = nn.ModuleList(TransformerBlock(width, 4, config.dropout) for _ in range(2))
        self.current, self.first, self.previous, self.difference = (nn.Linear(channels, channels) for _ in range(4))
        self.token_positions = nn.Parameter(torch.randn(1, 1, config.tokens_per_frame, channels) * 0.02)
        self.film = nn.Linear(width, 2 * channels)  # feature-wise linear modulation by the text
        self.film_norm, self.film_mix = nn.LayerNorm(channels), nn.Linear(channels, channels)
        self.pool = TextAttentionPool(width, channels)
        self.frame_projection = nn.Linear(9 * channels + width, width)
        self.frame_positions = nn.Parameter(torch.randn(1, CLIP_FRAMES, width) * 0.02)
        self.sequence = CausalSequence(config)
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1 + LEVELS))
        # For auxiliary losses only:
        self.displacements = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, DISPLACEMENTS))
        self.caption = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(CAPTION_WORDS)))
        self.eyes = nn.Linear(channels, EYES_WIDTH)

    def forward(self, tokens: Tensor, words: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return progress logits (B, 16), level logits (B, 16, 5) and states for tokens (B, 16, tokens, channels)."""
        states = self.encode(tokens, words, known)
        return (*self.predict(states), states)

    def predict(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return progress and level logits for the state after each frame."""
        out: Tensor = self.output(states)
        return out[..., 0], out[..., 1:]

    def encode(self, tokens: Tensor, words: Tensor, known: Tensor) -> Tensor:
        """Return the state after every frame, (B, 16, width)."""
        text = self._encode_text(words, known)
        previous = torch.cat([tokens[:, :1], tokens[:, :-1]], dim=1)
        fused = self.current(tokens) + self.first(tokens[:, :1]) + self.previous(previous) + self.token_positions
        fused = fused + self.difference((tokens - tokens[:, :1]).abs())
        scale, shift = self.film(text)[:, None, None].chunk(2, -1)
        fused = fused + self.film_mix(torch.relu(self.film_norm(fused) * (1 + scale) + shift))
        texts = text[:, None].expand(-1, CLIP_FRAMES, -1)
        pooled = torch.cat([self.pool(text, fused), fused.mean(2), texts], -1)
        x: Tensor = self.sequence(self.frame_projection(pooled) + self.frame_positions)
        return x

    def _encode_text(self, words: Tensor, known: Tensor) -> Tensor:
        x = self.word_projection(words) + self.word_positions
        mask = (known - 1)[:, None, None] * 1e4
        for layer in self.text_layers:
            x = layer(x, mask)
        return (x * known[..., None]).sum(1) / known.sum(1, keepdim=True).clamp(min=1)


class CausalSequence(nn.Module):
    """Causal attention: a sequence model that never looks ahead."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.body = nn.ModuleList(TransformerBlock(config.width, 4, config.dropout) for _ in range(config.layers))
        self.register_buffer("causal_mask", torch.full((CLIP_FRAMES, CLIP_FRAMES), -1e4).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(x, self.causal_mask)
        return x


@dataclass(frozen=True, eq=False)
class NetworkOutput:
    """What the network predicts of a batch, and what lies between."""

    progress: Tensor  # logits (B, 16)
    levels: Tensor  # logits (B, 16, 5)
    displacements: Tensor  # (B, 16, 7)
    caption: Tensor  # logits (B, words)
    tokens: Tensor  # (B x 16, tokens, channels)
    states: Tensor  # (B, 16, width)


class PocketNetwork(nn.Module):
    """Image encoder and temporal encoder together, for training."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.image_encoder = ConvImageEncoder(config)
        self.temporal_encoder = TemporalEncoder(config)

    def forward(self, frames: Tensor, words: Tensor, known: Tensor) -> NetworkOutput:
        """Return everything that is predicted of frames uint8 (B, 16, H, W, 3)."""
        temporal = self.temporal_encoder
        tokens = self.image_encoder(frames.flatten(0, 1))
        states = temporal.encode(tokens.unflatten(0, frames.shape[:2]), words, known)
        progress, levels = temporal.predict(states)
        displacements, caption = temporal.displacements(states), temporal.caption(states[:, -1])
        return NetworkOutput(progress, levels, displacements, caption, tokens, states)


# The losses: levels and progress where they are known, and displacements as an auxiliary target.


def level_and_progress_loss(progress: Tensor, levels: Tensor, true_progress: Tensor, true_level: Tensor) -> Tensor:
    """Return cross-entropy and distance of level and success, mostly at the end, and cross-entropy of progress."""
    known = (true_level > 0).float()
    index = torch.arange(known.shape[1], device=known.device)
    last = (index == (known * index).argmax(1, keepdim=True)).float() * known
    weight = 0.5 * known / known.sum(1, keepdim=True).clamp(min=1) + 0.5 * last
    target = (true_level - 1).clamp(min=0)
    entropy = nn.functional.cross_entropy(levels.transpose(1, 2), target, reduction="none", label_smoothing=0.02)
    mean = (levels.softmax(-1) * torch.arange(1.0, 6.0, device=levels.device)).sum(-1)
    distance = (mean - true_level).abs()
    success = _cross_entropy(levels[..., -1] - levels[..., :-1].logsumexp(-1), (true_level == LEVELS).float())
    progress_loss = _mean_where_known(_cross_entropy(progress, true_progress), true_progress)
    level_loss = ((entropy + 0.3 * distance + 0.3 * success) * weight).sum() / weight.sum().clamp(min=1)
    return level_loss + 0.5 * progress_loss


def displacement_loss(displacements: Tensor, true_displacements: Tensor) -> Tensor:
    """Return the smooth L1 loss of displacements in tenths of a metre, where they are known."""
    target = true_displacements.nan_to_num(0.0) * 10
    return _mean_where_known(nn.functional.smooth_l1_loss(displacements, target, reduction="none"), true_displacements)


def caption_loss(caption: Tensor, true_caption: Tensor) -> Tensor:
    """Return the binary cross-entropy of the words of a caption, where there is one."""
    return _mean_where_known(_cross_entropy(caption, true_caption), true_caption)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, target.nan_to_num(0.0), reduction="none")


def _mean_where_known(loss: Tensor, target: Tensor) -> Tensor:
    labelled = torch.isfinite(target).float()
    return (loss * labelled).sum() / labelled.sum().clamp(min=1)


def distillation_loss(predicted: Tensor, features: Tensor) -> Tensor:
    """Return how far predicted image features point away from the pretrained ones."""
    return (1 - nn.functional.cosine_similarity(predicted.float(), features.float(), dim=-1)).mean()
