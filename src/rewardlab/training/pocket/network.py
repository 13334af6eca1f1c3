"""The networks and their losses."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rewardlab.models.pocket.inference import CLIP_FRAMES, PIECES_READ
from rewardlab.training.encoders import PATCH, WORD_VECTOR_WIDTH, Dinov2, Dinov2ImageEncoder
from rewardlab.training.encoders import WIDTH as EYES_WIDTH
from rewardlab.training.pocket import NOT_DONE
from rewardlab.worlds.metaworld.instructions import CAPTION_WORDS

LEVELS = 5
LARGE_FRAMES = 8  # of a clip that pocket-large looks at
STRIDE = 16  # pixels to a token of the convolutions
_LATENTS = 4  # queries beside the words
_FROZEN = "image_encoder.frozen."
MOVES = 5  # how far the asked thing and the hand have moved in the picture, and the distance between them
DISPLACEMENTS = 7  # how far the object and the gripper have moved along three axes, and the distance between them


@dataclass(frozen=True)
class NetworkConfig:
    """The size of a network: side and number of its frames, what it sees with, and how wide and deep it reads."""

    size: int = 112
    frames: int = CLIP_FRAMES
    channels: tuple[int, int, int, int] = (16, 32, 80, 160)  # of the convolutions
    dinov2: bool = False  # DINOv2 sees beside them
    width: int = 192
    reading: int = 2  # layers in which the words look at a frame
    layers: int = 3  # over the frames
    dropout: float = 0.1

    @property
    def token_width(self) -> int:
        return self.channels[-1] + EYES_WIDTH * self.dinov2

    @property
    def tokens_per_frame(self) -> int:
        return (self.size // (PATCH if self.dinov2 else STRIDE)) ** 2


def network_config(variant: str, size: int) -> NetworkConfig:
    """Return the network of a variant for stored frames of this side; the small ones see them smaller."""
    if variant == "pocket-large":
        return NetworkConfig(size, LARGE_FRAMES, (16, 32, 64, 128), dinov2=True, reading=3, dropout=0.15)
    return NetworkConfig(size * 2 // 3 // STRIDE * STRIDE)


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

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = Attention(width, heads), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
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
        return self.tokens(frames.permute(0, 3, 1, 2).float())

    def tokens(self, pixels: Tensor) -> Tensor:
        """Return the image tokens of pixel values from 0 to 255, (N, 3, H, W)."""
        x: Tensor = self.body((pixels - 110.0) / 60.0)
        return x.flatten(2).transpose(1, 2)


class LargeImageEncoder(nn.Module):
    """DINOv2, which is not trained, and convolutions beside it, which are: a token for each patch of 14 pixels."""

    def __init__(self, config: NetworkConfig, encoder: Dinov2) -> None:
        super().__init__()
        self.frozen = Dinov2ImageEncoder(encoder, config.size)
        self.trained, self.side = ConvImageEncoder(config), config.size // PATCH * STRIDE

    def forward(self, frames: Tensor) -> Tensor:
        """Return the image tokens of frames given as uint8 (N, H, W, 3)."""
        pixels = nn.functional.interpolate(frames.permute(0, 3, 1, 2).float(), size=self.side, mode="bilinear")
        with torch.no_grad():
            seen = self.frozen(frames)
        return torch.cat([seen, self.trained.tokens(pixels)], dim=-1)


class ReadingBlock(nn.Module):
    """Queries look at the tokens of a frame, and then at each other."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.look, self.projection = nn.LayerNorm(width), Attention(width, heads), nn.Linear(width, width)
        self.among = TransformerBlock(width, heads, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        queries = queries + self.dropout(self.projection(self.look(self.norm(queries), tokens)))
        read: Tensor = self.among(queries, mask)
        return read


class TemporalEncoder(nn.Module):
    """From the image tokens of the frames and the word vectors to progress and levels after every frame."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        width, channels, heads = config.width, config.token_width, 6
        self.word_projection = nn.Linear(WORD_VECTOR_WIDTH, width)
        self.word_positions = nn.Parameter(torch.randn(1, PIECES_READ, width) * 0.02)
        self.text_layers = nn.ModuleList(TransformerBlock(width, heads, config.dropout) for _ in range(2))
        self.token_norm = nn.LayerNorm(channels)
        self.current, self.first, self.difference = (nn.Linear(channels, width) for _ in range(3))
        self.token_positions = nn.Parameter(torch.randn(1, 1, config.tokens_per_frame, width) * 0.02)
        self.token_mix = nn.Sequential(nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))
        self.fused_norm = nn.LayerNorm(width)
        self.latents = nn.Parameter(torch.randn(1, _LATENTS, width) * 0.02)
        self.reading = nn.ModuleList(ReadingBlock(width, heads, config.dropout) for _ in range(config.reading))
        self.frame_projection = nn.Linear((_LATENTS + 3) * width, width)
        self.frame_positions = nn.Parameter(torch.randn(1, config.frames, width) * 0.02)
        self.sequence = CausalSequence(config)
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1 + LEVELS))
        # For auxiliary losses only:
        self.displacements = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, DISPLACEMENTS))
        self.caption = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(CAPTION_WORDS)))
        self.eyes = nn.Linear(channels, EYES_WIDTH)
        self.where_query, self.where_key = nn.Linear(width, width), nn.Linear(width, width)
        self.moves = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, MOVES))

    def forward(self, tokens: Tensor, words: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return progress logits (B, T), level logits (B, T, 5) and states for tokens (B, T, tokens, channels)."""
        states, _ = self.encode(tokens, words, known)
        return (*self.predict(states), states)

    def predict(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return progress and level logits for the state after each frame."""
        out: Tensor = self.output(states)
        return out[..., 0], out[..., 1:]

    def encode(
        self, tokens: Tensor, words: Tensor, known: Tensor, video: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the state after every frame, (B, T, width), and how likely each token shows what is asked for.

        `video` says whose tokens each text is about.
        """
        fused = self._fuse(tokens)
        fused = fused if video is None else fused[video]
        frames = fused.shape[1]
        text = self._encode_text(words, known)
        mean_text = _mean_of(text, known)[:, None].expand(-1, frames, -1)
        queries = torch.cat([self.latents.expand(text.shape[0], -1, -1), text], dim=1)
        there = torch.cat([torch.ones_like(known[:, :1]).expand(-1, _LATENTS), known], dim=1)
        mask = (there[:, None].expand(-1, frames, -1).flatten(0, 1)[:, None, None] - 1) * 1e4
        read = queries[:, None].expand(-1, frames, -1, -1).flatten(0, 1)
        flat = self.fused_norm(fused).flatten(0, 1)
        for layer in self.reading:
            read = layer(read, flat, mask)
        read = read.unflatten(0, (-1, frames))
        said = _mean_of(read[:, :, _LATENTS:].flatten(0, 1), known[:, None].expand(-1, frames, -1).flatten(0, 1))
        parts = [read[:, :, :_LATENTS].flatten(2), said.unflatten(0, (-1, frames)), fused.mean(2), mean_text]
        x: Tensor = self.sequence(self.frame_projection(torch.cat(parts, dim=-1)) + self.frame_positions)
        where = (self.where_key(fused) @ self.where_query(read[:, :, 0])[..., None])[..., 0]
        return x, where * where.new_tensor(read.shape[-1]).rsqrt()

    def _fuse(self, tokens: Tensor) -> Tensor:
        """Return what each place of a frame shows now and at first, and how far that differs."""
        tokens = self.token_norm(tokens)
        first = tokens[:, :1]
        fused = self.current(tokens) + self.first(first) + self.difference((tokens - first).abs())
        fused = fused + self.token_positions
        mixed: Tensor = fused + self.token_mix(fused)
        return mixed

    def _encode_text(self, words: Tensor, known: Tensor) -> Tensor:
        x = self.word_projection(words) + self.word_positions[:, : words.shape[1]]
        mask = (known - 1)[:, None, None] * 1e4
        for layer in self.text_layers:
            x = layer(x, mask)
        return x


def _mean_of(words: Tensor, known: Tensor) -> Tensor:
    return (words * known[..., None]).sum(1) / known.sum(1, keepdim=True).clamp(min=1)


class CausalSequence(nn.Module):
    """Causal attention: a sequence model that never looks ahead."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.body = nn.ModuleList(TransformerBlock(config.width, 4, config.dropout) for _ in range(config.layers))
        self.register_buffer("causal_mask", torch.full((config.frames, config.frames), -1e4).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(x, self.causal_mask)
        return x


@dataclass(frozen=True, eq=False)
class NetworkOutput:
    """What the network predicts of a batch, and what lies between."""

    progress: Tensor  # logits (B, T)
    levels: Tensor  # logits (B, T, 5)
    displacements: Tensor  # (B, T, 7)
    caption: Tensor  # logits (B, words)
    tokens: Tensor  # (V x T, tokens, channels)
    states: Tensor  # (B, T, width)
    where: Tensor  # logits (B, T, tokens): which token shows the thing that is asked for
    moves: Tensor  # (B, T, 5)


class PocketNetwork(nn.Module):
    """Image encoder and temporal encoder together, for training; `encoder` is DINOv2 where the network has it."""

    def __init__(self, config: NetworkConfig, encoder: Dinov2 | None = None) -> None:
        super().__init__()
        large = LargeImageEncoder(config, encoder) if config.dinov2 and encoder else None
        self.image_encoder = large or ConvImageEncoder(config)
        self.temporal_encoder = TemporalEncoder(config)

    def trained_state(self) -> dict[str, Tensor]:
        """Return all weights and buffers but those of DINOv2."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith(_FROZEN)}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Put a trained state in place."""
        frozen = {name: value for name, value in self.state_dict().items() if name.startswith(_FROZEN)}
        self.load_state_dict({**frozen, **state})

    def forward(self, frames: Tensor, words: Tensor, known: Tensor, video: Tensor | None = None) -> NetworkOutput:
        """Return everything that is predicted of videos, uint8 (V, T, H, W, 3), and texts about them."""
        temporal = self.temporal_encoder
        tokens = self.image_encoder(frames.flatten(0, 1))
        states, where = temporal.encode(tokens.unflatten(0, frames.shape[:2]), words, known, video)
        progress, levels = temporal.predict(states)
        displacements, caption = temporal.displacements(states), temporal.caption(states[:, -1])
        moves = temporal.moves(states)
        return NetworkOutput(progress, levels, displacements, caption, tokens, states, where, moves)


# The losses: levels and progress where they are known, and displacements as an auxiliary target.


def level_and_progress_loss(progress: Tensor, levels: Tensor, true_progress: Tensor, true_level: Tensor) -> Tensor:
    """Return cross-entropy and distance of level and success, mostly at the end, and cross-entropy of progress.

    Where the level is NOT_DONE, only the probability of success counts.
    """
    known = (true_level > 0).float()
    index = torch.arange(known.shape[1], device=known.device)
    last = (index == (known * index).argmax(1, keepdim=True)).float() * known
    weight = 0.5 * known / known.sum(1, keepdim=True).clamp(min=1) + 0.5 * last
    target = (true_level - 1).clamp(min=0)
    entropy = nn.functional.cross_entropy(levels.transpose(1, 2), target, reduction="none", label_smoothing=0.02)
    mean = (levels.softmax(-1) * torch.arange(1.0, 6.0, device=levels.device)).sum(-1)
    distance = (mean - true_level).abs()
    done = levels[..., -1] - levels[..., :-1].logsumexp(-1)
    success = _cross_entropy(done, (true_level == LEVELS).float())
    progress_loss = _mean_where_known(_cross_entropy(progress, true_progress), true_progress)
    not_done = (true_level == NOT_DONE).float()
    at_end = not_done * (index == index[-1])
    not_done = 0.5 * not_done / not_done.sum(1, keepdim=True).clamp(min=1) + at_end
    level_loss = ((entropy + 0.3 * distance + 0.3 * success) * weight + success * not_done).sum()
    return level_loss / weight.sum().clamp(min=1) + 0.5 * progress_loss


def displacement_loss(displacements: Tensor, true_displacements: Tensor) -> Tensor:
    """Return the smooth L1 loss of displacements in tenths of a metre, where they are known."""
    target = true_displacements.nan_to_num(0.0) * 10
    return _mean_where_known(nn.functional.smooth_l1_loss(displacements, target, reduction="none"), true_displacements)


def place_loss(where: Tensor, moves: Tensor, places: Tensor) -> Tensor:
    """Return the cross-entropy of the token that shows the asked thing, and how wrong its way in the picture is.

    `places` (B, T, 4) are of the thing and the hand, from -1 to 1; what is outside the picture does not count.
    """
    side = round(where.shape[-1] ** 0.5)
    thing, hand = places[..., :2], places[..., 2:]
    inside = (thing.abs() < 1).all(-1)
    column, line = ((thing.nan_to_num(0.0) + 1) / 2 * side).long().clamp(0, side - 1).unbind(-1)
    entropy = nn.functional.cross_entropy(where.flatten(0, 1), (line * side + column).flatten(), reduction="none")
    found = (entropy * inside.flatten()).sum() / inside.sum().clamp(min=1)
    distance = (thing - hand).norm(dim=-1, keepdim=True)
    target = torch.cat([thing - thing[:, :1], hand - hand[:, :1], distance], dim=-1)
    way = nn.functional.smooth_l1_loss(moves, 3 * target.nan_to_num(0.0), reduction="none")
    return found + _mean_where_known(way, target)


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
