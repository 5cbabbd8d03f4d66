"""Tilesmith finds, remembers and ships the fastest kernel for every convolution, transposed convolution and GEMM."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that holds it; loaded when it is first asked for, so that importing the package stays light.
_HOMES = {
    "ConvSignature": "tilesmith.problems.conv",
    "GemmSignature": "tilesmith.problems.gemm",
    "Epilogue": "tilesmith.problems.epilogue",
    "parse_key": "tilesmith.problems.keys",
    "CachePopulator": "tilesmith.ready.preload",
    "Launchable": "tilesmith.dispatch.launchable",
    "get_launchable": "tilesmith.dispatch.launchable",
    "conv": "tilesmith.dispatch.eager",
    "gemm": "tilesmith.dispatch.eager",
    "grouped_gemm": "tilesmith.dispatch.products.groups",
    "scaled_gemm": "tilesmith.dispatch.products.scaled",
    "open_device": "tilesmith.runtime.opening",
    "forget": "tilesmith.dispatch.kept_calls",
    "host_target": "tilesmith.targets.detect",
    "parse_target": "tilesmith.targets.names",
    "TilesmithError": "tilesmith.errors",
    "tune": "tilesmith.ready.tuning",
}
# The same for names that need PyTorch. ``from tilesmith import *`` works without it, so it leaves them out.
_TORCH_HOMES = {
    "tune_model": "tilesmith.torch_ops.model_tuning",
    "optimize": "tilesmith.torch_ops.modules.optimize",
    "restore": "tilesmith.torch_ops.modules.optimize",
    "report_of": "tilesmith.torch_ops.modules.optimize",
}

if TYPE_CHECKING:
    from tilesmith.dispatch.eager import conv, gemm
    from tilesmith.dispatch.kept_calls import forget
    from tilesmith.dispatch.launchable import Launchable, get_launchable
    from tilesmith.dispatch.products.groups import grouped_gemm
    from tilesmith.dispatch.products.scaled import scaled_gemm
    from tilesmith.errors import TilesmithError
    from tilesmith.problems.conv import ConvSignature
    from tilesmith.problems.epilogue import Epilogue
    from tilesmith.problems.gemm import GemmSignature
    from tilesmith.problems.keys import parse_key
    from tilesmith.ready.preload import CachePopulator
    from tilesmith.ready.tuning import tune
    from tilesmith.runtime.opening import open_device
    from tilesmith.targets.detect import host_target
    from tilesmith.targets.names import parse_target
    from tilesmith.torch_ops.model_tuning import tune_model as tune_model  # noqa: PLC0414  # not in __all__
    from tilesmith.torch_ops.modules.optimize import optimize as optimize  # noqa: PLC0414
    from tilesmith.torch_ops.modules.optimize import report_of as report_of  # noqa: PLC0414
    from tilesmith.torch_ops.modules.optimize import restore as restore  # noqa: PLC0414

__all__ = [
    "CachePopulator",
    "ConvSignature",
    "Epilogue",
    "GemmSignature",
    "Launchable",
    "TilesmithError",
    "conv",
    "forget",
    "gemm",
    "get_launchable",
    "grouped_gemm",
    "host_target",
    "open_device",
    "parse_key",
    "parse_target",
    "scaled_gemm",
    "tune",
]


def _public(name: str) -> Any:
    """The object behind a public name."""
    home = _HOMES.get(name) or _TORCH_HOMES[name]
    collects = gc.isenabled()
    # NOTE: what modules allocate lives on, so a collection would free nothing. After ``import torch`` the allocations
    # set off one of all of PyTorch's objects, which takes longer than the imports (measured: 85 of 160 ms).
    gc.disable()
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"tilesmith.{name} needs PyTorch; install it: pip install torch") from None
    finally:
        if collects:
            # NOTE: the next allocation would set off a collection of all that the imports have made, and the hit
            # that follows would find cold caches. Frozen and thawed, it counts as old at once.
            if not gc.get_freeze_count():  # else the program has frozen objects, which stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def tensor_calls() -> Any:
    """PyTorch's side of ``conv`` and ``gemm``; it imports PyTorch, which a program with tensors has imported."""
    from tilesmith.torch_ops import calls

    return calls


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _TORCH_HOMES:
        raise AttributeError(f"module 'tilesmith' has no attribute {name!r}")
    # The package of this name is called like the function (``tilesmith/tune/__init__.py`` says why).
    value = import_module("tilesmith.tune") if name == "tune" else _public(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_TORCH_HOMES])
