"""Small models with the shapes of known ones, their batch norms filled with random numbers."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """ResNet's block: the sum changes its first tensor in place."""

    def __init__(self, c, k, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(k, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k)
        down = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))
        self.downsample = down if stride > 1 or c != k else None

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)
        self.layers = nn.Sequential(Block(8, 8), Block(8, 16, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.layers(self.relu(self.bn1(self.conv1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class SqueezeExcite(nn.Module):
    """MobileNetV3's: the gate is a 1x1 convolution with an activation; the sum has its new tensor on the right."""

    def __init__(self, c=8):
        super().__init__()
        self.expand, self.bn, self.act = nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.Hardswish()
        self.fc1, self.fc2 = nn.Conv2d(c, 4, 1), nn.Conv2d(4, c, 1)
        self.project, self.out = nn.Conv2d(c, c, 3, padding=1, groups=c), nn.BatchNorm2d(c)

    def forward(self, x):
        y = self.act(self.bn(self.expand(x)))
        gate = functional.hardsigmoid(self.fc2(torch.relu(self.fc1(functional.adaptive_avg_pool2d(y, 1)))))
        return x + self.out(self.project(y * gate))


class UNet(nn.Module):
    """A level down and up, by a transposed convolution in groups whose batch norm has no gain."""

    def __init__(self):
        super().__init__()
        self.down, self.act = nn.Conv2d(4, 8, 3, stride=2, padding="valid"), nn.LeakyReLU(0.2)
        self.up, self.bn = nn.ConvTranspose2d(8, 8, 2, stride=2, groups=2), nn.BatchNorm2d(8, affine=False)
        self.last = nn.Conv2d(12, 3, 3, padding="same")

    def forward(self, x):
        up = self.bn(self.up(self.act(self.down(x)))).clamp(-1, 1)
        return self.last(torch.cat([up, x[..., : up.shape[-2], : up.shape[-1]]], 1)).sigmoid()


def filled(model, seed=0):
    """``model`` with random weights of both signs and random statistics, in evaluation."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.normal_(generator=generator)
                module.running_var.uniform_(0.5, 2, generator=generator)
    return model.eval()


def image(*shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
