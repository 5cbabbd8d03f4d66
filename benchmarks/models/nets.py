"""Networks that torchvision does not have: a U-Net, an autoencoder's decoder, a super-resolution net."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUPS = 32  # of every group norm of the decoder


class DoubleConv(nn.Sequential):
    """Two 3x3 convolutions, each with batch norm and ReLU."""

    def __init__(self, inner: int, outer: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inner, outer):
            layers += [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with padding and batch norm. Images ``(n, 3, h, w)`` to ``(n, 2, h, w)``.

    ``h`` and ``w`` are multiples of ``2 ** depth``. 2x2 transposed convolutions of stride 2 enlarge the images.
    """

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(DoubleConv(2 * w, w) for w in reversed(widths[:-1]))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class ResidualBlock(nn.Module):
    """Group norm, SiLU and a 3x3 convolution, twice; a 1x1 convolution beside them where the width changes."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, inner), nn.GroupNorm(GROUPS, outer)
        self.conv1, self.conv2 = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.beside = nn.Identity() if inner == outer else nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        return self.beside(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Self-attention of one head over all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        pixels = self.norm(x).permute(0, 2, 3, 1).reshape(n, 1, h * w, c)
        q, k, v = self.qkv(pixels).chunk(3, -1)
        y = self.out(functional.scaled_dot_product_attention(q, k, v))
        return x + y.reshape(n, h, w, c).permute(0, 3, 1, 2)


class Decoder(nn.Module):
    """A decoder like that of Stable Diffusion's autoencoder. Latents ``(n, 4, h, w)`` to images ``(n, 3, 8h, 8w)``.

    ``width`` is the number of channels of the last level: 128 in Stable Diffusion.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        top = 4 * width
        self.first = nn.Conv2d(4, top, 3, padding=1)
        self.middle = nn.Sequential(ResidualBlock(top, top), Attention(top), ResidualBlock(top, top))
        levels: list[nn.Module] = []
        channels = top
        for level, wide in enumerate((top, top, 2 * width, width)):
            if level:
                levels += [nn.Upsample(scale_factor=2.0), nn.Conv2d(channels, channels, 3, padding=1)]
            levels += [ResidualBlock(channels, wide), ResidualBlock(wide, wide), ResidualBlock(wide, wide)]
            channels = wide
        self.levels = nn.Sequential(*levels)
        self.last = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, z: Tensor) -> Tensor:
        return self.last(self.levels(self.middle(self.first(z))))


class SuperBlock(nn.Module):
    """Two 3x3 convolutions with a ReLU between them, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(functional.relu(self.conv1(x)))


class SuperResolution(nn.Module):
    """EDSR (Lim et al., 2017). Images ``(n, 3, h, w)`` to ``(n, 3, 2h, 2w)``."""

    def __init__(self, width: int = 64, blocks: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(SuperBlock(width) for _ in range(blocks)), nn.Conv2d(width, width, 3, padding=1))
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(self.up(x + self.body(x)))
