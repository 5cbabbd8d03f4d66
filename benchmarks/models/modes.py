"""The ways to run a model that are compared: PyTorch's and ours.

A mode gives a callable of the input. It raises ``Missing`` where this version does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

Forward = Callable[[torch.Tensor], torch.Tensor]
# Models whose compilation lasts minutes with max-autotune; it is measured for these alone.
AUTOTUNED = ("resnet50", "convnext_tiny", "unet", "mobilenet_v3_large")


class Missing(Exception):
    """This version of Tilesmith or PyTorch does not have the mode."""


@dataclass(frozen=True)
class Mode:
    """One way to run a model.

    Attributes:
        name: As tables and commands name it.
        ours: Whether Tilesmith takes part.
        apply: Gives the callable for a model, which it may change.
        channels_last: Whether model and input lie channels-last.
        families: The kinds of devices that have it.
        freezing: Inductor treats parameters as constants (inference alone).
        captured: The benchmark captures the step in a CUDA graph; else the mode makes graphs itself.
    """

    name: str
    ours: bool
    apply: Callable[[nn.Module], Forward]
    channels_last: bool = True
    families: tuple[str, ...] = ("cpu", "cuda")
    freezing: bool = False
    captured: bool = True

    def takes(self, model: str, family: str, training: bool) -> bool:
        """Whether the mode is measured there."""
        slow = self.autotunes and model not in (*AUTOTUNED, "tiny")
        return family in self.families and not (self.freezing and training) and not slow

    @property
    def autotunes(self) -> bool:
        """Whether Inductor times kernels on the device while it compiles."""
        return "max-autotune" in self.name

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Inductor's settings while the mode compiles: until its first calls have returned."""
        if not self.freezing:
            yield
            return
        import torch._inductor.config as inductor

        with inductor.patch(freezing=True):
            yield


def eager(model: nn.Module) -> Forward:
    return model


def compiled(mode: str | None = None) -> Callable[[nn.Module], Forward]:
    """torch.compile with Inductor."""
    return lambda model: torch.compile(model, mode=mode, fullgraph=True)


def optimized(model: nn.Module) -> nn.Module:
    """``tilesmith.optimize``: modules replaced."""
    import tilesmith

    optimize = getattr(tilesmith, "optimize", None)
    if optimize is None:
        raise Missing("tilesmith.optimize is not there")
    return optimize(model)


def optimized_and_compiled(model: nn.Module) -> Forward:
    return torch.compile(optimized(model))


def backend(mode: str | None = None) -> Callable[[nn.Module], Forward]:
    """torch.compile with our backend."""

    def apply(model: nn.Module) -> Forward:
        from tilesmith.torch_ops.compile.backend import backend as tilesmith_backend

        if "tilesmith" not in torch._dynamo.list_backends(exclude_tags=()):  # from a checkout that is not installed
            torch._dynamo.register_backend(tilesmith_backend, name="tilesmith")
        options = {"mode": mode} if mode else {}
        return torch.compile(model, backend="tilesmith", fullgraph=True, **options)

    return apply


_GPU, _CPU = ("cuda",), ("cpu",)
MODES = (
    Mode("eager", False, eager),
    Mode("eager, channels first", False, eager, channels_last=False),
    Mode("compile", False, compiled()),
    Mode("compile, channels first", False, compiled(), channels_last=False),
    Mode("compile, freezing", False, compiled(), families=_CPU, freezing=True),
    Mode("compile, freezing, channels first", False, compiled(), channels_last=False, families=_CPU, freezing=True),
    Mode("compile, reduce-overhead", False, compiled("reduce-overhead"), families=_GPU, captured=False),
    # The benchmark captures these as it captures the others.
    Mode("compile, max-autotune", False, compiled("max-autotune-no-cudagraphs"), families=_GPU),
    Mode("compile, max-autotune, freezing", False, compiled("max-autotune"), families=_CPU, freezing=True),
    Mode("tilesmith.optimize", True, optimized),
    Mode("tilesmith backend", True, backend()),
    Mode("tilesmith backend, reduce-overhead", True, backend("reduce-overhead"), families=_GPU, captured=False),
    Mode("tilesmith backend, freezing", True, backend(), families=_CPU, freezing=True),
    Mode("optimize + compile", True, optimized_and_compiled),
    Mode("optimize + compile, freezing", True, optimized_and_compiled, families=_CPU, freezing=True),
)  # fmt: skip


def mode_named(name: str) -> Mode:
    return next(mode for mode in MODES if mode.name == name)
