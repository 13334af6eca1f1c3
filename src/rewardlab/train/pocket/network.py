"""The networks: pictures to tokens frame by frame, tokens and words to progress and levels, never looking ahead."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.models.pocket.frame_window import SHOWN
from rewardlab.models.pocket.wordpiece import MOST_PIECES
from rewardlab.train.pocket.word_vectors import WIDTH

LEVELS = 5
WAYS = 7  # how far the thing and the hand have gone along three axes, and how far they are apart


@dataclass(frozen=True)
class Shape:
    """How large a network is; `eyes` is cnn or vit, `memory` is attention or gru."""

    size: int = 112
    eyes: str = "cnn"
    memory: str = "attention"
    channels: tuple[int, int, int, int] = (16, 32, 64, 128)
    width: int = 192
    layers: int = 3
    dropout: float = 0.1

    @property
    def places(self) -> int:
        """Return how many tokens there are of a frame."""
        return (self.size // 16) ** 2


SHAPES = {
    "pocket-plain": Shape(),
    "pocket": Shape(),
    "pocket-alt": Shape(eyes="vit", memory="gru", channels=(0, 0, 0, 160), layers=2),
}


class Attention(nn.Module):
    """Multi-head attention written out, so that every exporter and every backend computes the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask, self.tell, self.give = (nn.Linear(width, width) for _ in range(3))

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what the queries gather from the keys; the mask is added to the scores."""
        parts = [self._split(layer(x)) for layer, x in ((self.ask, queries), (self.tell, keys), (self.give, keys))]
        scores = parts[0] @ parts[1].transpose(-1, -2) * (queries.shape[-1] // self.heads) ** -0.5
        if mask is not None:
            scores = scores + mask
        return (scores.softmax(-1) @ parts[2]).transpose(1, 2).flatten(2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """A transformer layer: attention, then a small network, each on normalised input."""

    def __init__(self, width: int, heads: int, dropout: float, wide: int = 2) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.join = Attention(width, heads), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, wide * width), nn.GELU(), nn.Linear(wide * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the sequence after one layer."""
        y = self.before(x)
        x = x + self.drop(self.join(self.attention(y, y, mask)))
        return x + self.drop(self.think(self.after(x)))


class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels, 1), nn.ReLU(), _conv(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the picture after one block."""
        return torch.relu(x + self.body(x))


def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class ConvEyes(nn.Module):
    """Convolutions that end at a sixteenth of the picture's side."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        a, b, c, d = shape.channels
        steps: list[nn.Module] = [_conv(3, a, 2), nn.ReLU(), _conv(a, b, 2), nn.ReLU(), Residual(b)]
        steps += [_conv(b, c, 2), nn.ReLU(), Residual(c), Residual(c)]
        steps += [_conv(c, d, 2), nn.ReLU(), Residual(d), Residual(d)]
        self.body = nn.Sequential(*steps)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the tokens of frames given as uint8 (N, H, W, 3)."""
        x: Tensor = self.body(_scaled(frames))
        return x.flatten(2).transpose(1, 2)


class PatchEyes(nn.Module):
    """A small vision transformer on patches of 16 pixels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.channels[3]
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.randn(1, shape.places, width) * 0.02)
        self.body = nn.Sequential(*(Block(width, 4, 0.0) for _ in range(4)), nn.LayerNorm(width))

    def forward(self, frames: Tensor) -> Tensor:
        """Return the tokens of frames given as uint8 (N, H, W, 3)."""
        x: Tensor = self.body(self.patches(_scaled(frames)).flatten(2).transpose(1, 2) + self.place)
        return x


def _scaled(frames: Tensor) -> Tensor:
    return (frames.permute(0, 3, 1, 2).float() - 110.0) / 60.0


class Glance(nn.Module):
    """Looks for what the words are about: eight places of a frame at once, each as the tokens there are."""

    def __init__(self, width: int, given: int) -> None:
        super().__init__()
        self.heads = 8
        self.ask, self.tell = nn.Linear(width, given), nn.Linear(given, given)

    def forward(self, text: Tensor, tokens: Tensor) -> Tensor:
        """Return (B, frames, 8 x channels) for texts (B, width) and tokens (B, frames, places, channels)."""
        keys = self.tell(tokens).unflatten(3, (self.heads, -1)).permute(0, 1, 3, 2, 4)
        query = self.ask(text).unflatten(1, (self.heads, 1, -1))[:, None]
        scores = (keys * query).sum(-1) * (tokens.shape[-1] // self.heads) ** -0.5
        return (scores.softmax(-1) @ tokens).flatten(2)


class Head(nn.Module):
    """From the tokens of 16 frames and the words to progress and levels after every frame."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, given = shape.width, shape.channels[3]
        self.read = nn.Linear(WIDTH, width)
        self.word_place = nn.Parameter(torch.randn(1, MOST_PIECES, width) * 0.02)
        self.reader = nn.ModuleList(Block(width, 4, shape.dropout) for _ in range(2))
        self.now, self.first, self.last, self.changed = (nn.Linear(given, given) for _ in range(4))
        self.token_place = nn.Parameter(torch.randn(1, 1, shape.places, given) * 0.02)
        self.film = nn.Linear(width, 2 * given)
        self.norm, self.mix = nn.LayerNorm(given), nn.Linear(given, given)
        self.glance = Glance(width, given)
        self.gather = nn.Linear(9 * given + width, width)
        self.time = nn.Parameter(torch.randn(1, SHOWN, width) * 0.02)
        self.memory = Memory(shape)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1 + LEVELS))
        self.ways = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, WAYS))  # for training only

    def forward(self, tokens: Tensor, words: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Return progress logits (B, 16) and level logits (B, 16, 5) for tokens (B, 16, places, channels)."""
        return self.say(self.watch(tokens, words, known))

    def say(self, mind: Tensor) -> tuple[Tensor, Tensor]:
        """Return progress and level logits of what is in mind after each frame."""
        out: Tensor = self.out(mind)
        return out[..., 0], out[..., 1:]

    def watch(self, tokens: Tensor, words: Tensor, known: Tensor) -> Tensor:
        """Return what is in mind after every frame, (B, 16, width)."""
        text = self._text(words, known)
        before = torch.cat([tokens[:, :1], tokens[:, :-1]], dim=1)
        fused = self.now(tokens) + self.first(tokens[:, :1]) + self.last(before) + self.token_place
        fused = fused + self.changed((tokens - tokens[:, :1]).abs())
        scale, shift = self.film(text)[:, None, None].chunk(2, -1)
        fused = fused + self.mix(torch.relu(self.norm(fused) * (1 + scale) + shift))
        texts = text[:, None].expand(-1, SHOWN, -1)
        seen = torch.cat([self.glance(text, fused), fused.mean(2), texts], -1)
        x: Tensor = self.memory(self.gather(seen) + self.time)
        return x

    def _text(self, words: Tensor, known: Tensor) -> Tensor:
        x = self.read(words) + self.word_place
        mask = (known - 1)[:, None, None] * 1e4
        for layer in self.reader:
            x = layer(x, mask)
        return (x * known[..., None]).sum(1) / known.sum(1, keepdim=True).clamp(min=1)


class Memory(nn.Module):
    """What was seen so far: attention to frames before, or a recurrent state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.recurrent, self.layers = shape.memory == "gru", shape.layers
        if self.recurrent:
            self.body: Any = nn.GRU(shape.width, shape.width, shape.layers, batch_first=True, dropout=shape.dropout)
        else:
            self.body = nn.ModuleList(Block(shape.width, 4, shape.dropout) for _ in range(shape.layers))
        self.register_buffer("ahead", torch.full((SHOWN, SHOWN), -1e4).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sequence with everything that came before in mind."""
        if self.recurrent:
            nothing = 0 * x[:, 0].expand(self.layers, -1, -1)  # said here, for an exporter would fix its batch
            return x + self.body(x, nothing)[0]
        for layer in self.body:
            x = layer(x, self.ahead)
        return x


class Pocket(nn.Module):
    """Eyes and head together, for training."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.eyes = ConvEyes(shape) if shape.eyes == "cnn" else PatchEyes(shape)
        self.head = Head(shape)

    def forward(self, frames: Tensor, words: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return progress and level logits and the ways that were gone, for frames uint8 (B, 16, H, W, 3)."""
        tokens = self.eyes(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        mind = self.head.watch(tokens, words, known)
        return *self.head.say(mind), self.head.ways(mind)
