"""The libraries that are measured through PyTorch; it is loaded when one of them is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilesmith.compare.rival import Setting, Way
from tilesmith.errors import ArgumentError


@dataclass(frozen=True)
class PyTorchRival:
    """One of them; ``module`` of this folder imports PyTorch."""

    name: str
    families: tuple[str, ...]
    module: str

    def is_here(self) -> bool:
        return find_spec("torch") is not None

    def version(self) -> str:
        return str(self._side().version(self.name))

    def ways(self, setting: Setting) -> AbstractContextManager[Sequence[Way]]:
        found: AbstractContextManager[Sequence[Way]] = self._side().ways(self.name, setting)
        return found

    def _side(self) -> Any:
        try:
            return import_module(f"tilesmith.compare.{self.module}")
        except ImportError as error:
            text = f"{self.name} is measured through PyTorch ({error}); install it: pip install torch"
            raise ArgumentError(text) from None


RIVALS = (
    PyTorchRival("onednn", ("cpu",), "onednn"),
    PyTorchRival("cudnn", ("cuda",), "cuda_libraries"),
    PyTorchRival("cublas", ("cuda",), "cuda_libraries"),
)
