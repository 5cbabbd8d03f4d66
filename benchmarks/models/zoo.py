"""The models that are measured: their sizes, weights and inputs.

Weights are random. The statistics of every batch norm are those of a batch, changed a little, and its scale and shift
are random: a batch norm that is left out, or folded wrongly, changes the result.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from nets import Decoder, SuperResolution, UNet
from torch import Tensor, nn
from torch.nn import functional

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CALIBRATION = 2  # images of the batch that gives the statistics


@dataclass(frozen=True)
class Model:
    """How a model is made on a kind of device.

    Attributes:
        make: Makes the model, with PyTorch's initial weights.
        shape: One input, without the batch.
        largest: The largest batch of an inference and of a training step; 0: any.
        classes: Whether the result is a score for each class; else an image.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    largest: tuple[int, int] = (0, 0)
    classes: bool = True


def torchvision_package() -> ModuleType:
    """torchvision, also where its own operators cannot be loaded: the models need none of them.

    NOTE: wheels of PyPI are built for CUDA. Beside a PyTorch without CUDA their operators do not load, and the import
    fails on two of them unless they are declared.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in ("nms", "qnms"):
            _libraries[0].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


_libraries: list[torch.library.Library] = []


def vision(name: str, **options: float) -> Callable[[], nn.Module]:
    """A model of torchvision."""

    def make() -> nn.Module:
        models = torchvision_package().models
        return getattr(models.video if name == "r3d_18" else models, name)(weights=None, **options)

    return make


_VISION = {
    "resnet50": Model(vision("resnet50"), (3, 224, 224)),
    "convnext_tiny": Model(vision("convnext_tiny", stochastic_depth_prob=0.0), (3, 224, 224)),
    "mobilenet_v3_large": Model(vision("mobilenet_v3_large", dropout=0.0), (3, 224, 224)),
    "efficientnet_v2_s": Model(
        vision("efficientnet_v2_s", dropout=0.0, stochastic_depth_prob=0.0), (3, 224, 224)
    ),
}  # fmt: skip
_VIDEO = vision("r3d_18")

VISION = (*_VISION, "r3d_18")  # they come from torchvision

#: The models by the family of the device: a processor gets smaller images.
MODELS: dict[str, dict[str, Model]] = {
    "cuda": _VISION | {
        "unet": Model(lambda: UNet(64), (3, 256, 256), (0, 16), classes=False),
        "r3d_18": Model(_VIDEO, (3, 16, 112, 112), (0, 32)),
        "vae_decoder": Model(lambda: Decoder(128), (4, 64, 64), (8, 2), classes=False),
        "super_resolution": Model(lambda: SuperResolution(64), (3, 128, 128), (0, 32), classes=False),
    },
    "cpu": _VISION | {
        "unet": Model(lambda: UNet(32), (3, 128, 128), classes=False),
        "r3d_18": Model(_VIDEO, (3, 8, 112, 112)),
        "vae_decoder": Model(lambda: Decoder(64), (4, 16, 16), classes=False),
        "super_resolution": Model(lambda: SuperResolution(64), (3, 64, 64), classes=False),
    },
}  # fmt: skip
TINY = Model(lambda: UNet(8, 2), (3, 16, 16), classes=False)


def model_named(name: str, family: str) -> Model:
    return TINY if name == "tiny" else MODELS[family][name]


def batch_of(model: Model, asked: int, training: bool) -> int:
    """The batch that is measured where ``asked`` is asked for."""
    largest = model.largest[training]
    return min(asked, largest) if largest else asked


@dataclass(frozen=True)
class Sample:
    """A model in eval mode, its input, and what its result is compared with by the loss; all on a CPU."""

    model: nn.Module
    x: Tensor
    target: Tensor


def make_sample(name: str, family: str, batch: int, dtype: str, seed: int = 0) -> Sample:
    """Random weights and data, rounded to ``dtype``: the same for the same arguments and threads."""
    found = model_named(name, family)
    torch.manual_seed(seed)
    model = found.make()
    randomize(model, torch.randn(CALIBRATION, *found.shape))
    x = torch.randn(batch, *found.shape)
    with torch.no_grad():
        y = model(x[:1])
    target = torch.randint(y.shape[1], (batch,)) if found.classes else torch.randn(batch, *y.shape[1:])
    return Sample(model.to(DTYPES[dtype]), x.to(DTYPES[dtype]), target)


def randomize(model: nn.Module, x: Tensor) -> None:
    """Give every batch norm the statistics of ``x``, changed a little, and random weights to every norm."""
    norms = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, norms):
                module.weight.uniform_(0.7, 1.3)
                module.bias.normal_(0.0, 0.2)
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = 1.0  # the statistics become those of the next batch
            if isinstance(getattr(module, "layer_scale", None), nn.Parameter):  # else ConvNeXt's blocks add 1e-6
                module.layer_scale.uniform_(0.1, 0.5)
        model.train()
        model(x)
        model.eval()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = 0.1
                module.running_mean.add_(0.1 * module.running_var.sqrt() * torch.randn_like(module.running_mean))
                module.running_var.mul_(torch.empty_like(module.running_var).uniform_(0.8, 1.25))


def loss_of(y: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of scores, squared error of images; in fp32 or better."""
    y = y if y.dtype == torch.float64 else y.float()
    return functional.cross_entropy(y, target) if target.dtype == torch.long else functional.mse_loss(y, target.to(y))


@dataclass(frozen=True)
class Answer:
    """What float64 computes: the result of an inference; the loss and all gradients, in one row, of a training step."""

    result: Tensor
    loss: float = 0.0


def answer_of(sample: Sample, training: bool, device: str = "cpu") -> Answer:
    """By PyTorch in float64 on the device, from the rounded weights and data."""
    model, x = copy.deepcopy(sample.model).double().to(device), sample.x.double().to(device)
    if not training:
        with torch.no_grad():
            return Answer(model(x).cpu())
    model.train()
    loss = loss_of(model(x), sample.target.to(device))
    loss.backward()
    return Answer(flat_gradients(model), float(loss.detach()))


def flat_gradients(model: nn.Module) -> Tensor:
    """All gradients in float64, one behind the other, on a CPU."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([torch.zeros(p.numel(), dtype=torch.float64) if p.grad is None
                      else p.grad.detach().double().cpu().contiguous().flatten() for p in parameters])  # fmt: skip


def relative_error(found: Tensor, answer: Tensor) -> float:
    """The largest error of an element over the largest element."""
    difference = (found.detach().double().cpu() - answer).abs().max()
    return float(difference / answer.abs().max())
