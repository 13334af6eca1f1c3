"""TinyViT (Wu et al. 2022): convolutions, then attention in windows; batch norms are folded into the convolutions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

MODEL_TYPE = "tiny_vit"
_EXPAND = 4  # of the hidden layers


@dataclass(frozen=True)
class TinyVitConfig:
    """The shape of a TinyViT; the first stage is convolutions alone. The defaults are TinyViT-5M at 224 pixels."""

    model_type: str = MODEL_TYPE
    widths: tuple[int, ...] = (64, 128, 160, 320)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (4, 5, 10)
    windows: tuple[int, ...] = (7, 14, 7)
    hidden_size: int = 320

    def __post_init__(self) -> None:
        counts = (len(self.widths), len(self.depths), len(self.heads) + 1, len(self.windows) + 1)
        numbers = (*self.widths, *self.depths, *self.heads, *self.windows)
        if self.model_type != MODEL_TYPE or len(set(counts)) != 1 or not all(0 < number <= 2048 for number in numbers):
            raise ValueError("a TinyViT has as many widths as depths, one head and window fewer, each from 1 to 2048")
        if self.hidden_size != self.widths[-1] or any(w % h for w, h in zip(self.widths[1:], self.heads)):
            raise ValueError("the last width of a TinyViT is its hidden_size, and heads divide widths")


class TinyVit(nn.Module):
    """Normalised pixels (N, 3, H, H) to maps (N, D, h, h), for sides such that the windows tile the maps."""

    def __init__(self, config: TinyVitConfig) -> None:
        super().__init__()
        first = config.widths[0]
        self.stem1 = nn.Conv2d(3, first // 2, 3, 2, 1)
        self.stem2 = nn.Conv2d(first // 2, first, 3, 2, 1)
        self.convolutions = nn.ModuleList(_Inverted(first) for _ in range(config.depths[0]))
        pairs = zip(config.widths, config.widths[1:])
        self.merges = nn.ModuleList(_Merge(before, after) for before, after in pairs)
        shapes = zip(config.widths[1:], config.depths[1:], config.heads, config.windows)
        self.stages = nn.ModuleList(
            nn.ModuleList(_Block(width, heads, window) for _ in range(depth)) for width, depth, heads, window in shapes
        )
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the map of the last stage."""
        x = self.stem2(nn.functional.gelu(self.stem1(pixels)))
        for block in self.convolutions:
            x = block(x)
        for merge, stage in zip(self.merges, self.stages):
            x = merge(x)
            for block in stage:
                x = block(x)
        return x

    def pooled(self, maps: Tensor) -> Tensor:
        """Return one vector per picture, as the published head takes it."""
        vectors: Tensor = self.norm(maps.mean((2, 3)))
        return vectors


class _Inverted(nn.Module):
    """An inverted bottleneck: expand, look around, contract."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = _EXPAND * width
        self.conv1 = nn.Conv2d(width, inner, 1)
        self.conv2 = nn.Conv2d(inner, inner, 3, 1, 1, groups=inner)
        self.conv3 = nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.gelu(self.conv2(nn.functional.gelu(self.conv1(x))))
        return nn.functional.gelu(x + self.conv3(inner))


class _Merge(nn.Module):
    """Half the side, another width."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 1)
        self.conv2 = nn.Conv2d(after, after, 3, 2, 1, groups=after)
        self.conv3 = nn.Conv2d(after, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv3(nn.functional.gelu(self.conv2(nn.functional.gelu(self.conv1(x)))))
        return out


class _Block(nn.Module):
    """Attention in windows, a convolution over each channel, an MLP."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.biases = nn.Parameter(torch.zeros(heads, window**2))  # by how many rows and columns two places are apart
        self.around = nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.up, self.down = nn.Linear(width, _EXPAND * width), nn.Linear(_EXPAND * width, width)
        self.register_buffer("apart", _offsets(window), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.around(x + self._attention(x))
        tokens = x.permute(0, 2, 3, 1)
        mixed = self.down(nn.functional.gelu(self.up(self.norm2(tokens))))
        return x + mixed.permute(0, 3, 1, 2)

    def _attention(self, x: Tensor) -> Tensor:
        (n, width, side, _), w = x.shape, self.window
        tiles = x.reshape(n, width, side // w, w, side // w, w).permute(0, 2, 4, 3, 5, 1).reshape(-1, w * w, width)
        parts = self.qkv(self.norm1(tiles)).unflatten(2, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4)
        bias = self.biases[:, self.apart].to(x.dtype)
        mixed = nn.functional.scaled_dot_product_attention(*parts, attn_mask=bias).transpose(1, 2).flatten(2)
        out = self.projection(mixed).reshape(n, side // w, side // w, w, w, width)
        return out.permute(0, 5, 1, 3, 2, 4).reshape(n, width, side, side)


def _offsets(window: int) -> Tensor:
    """Return for each two places of a window the number of their distance in rows and columns."""
    row, column = (torch.arange(window**2) // window, torch.arange(window**2) % window)
    return (row[:, None] - row).abs() * window + (column[:, None] - column).abs()
