"""The C extension: see ``binding/``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilesmith.plan.records import Slot

class LoadedPlan:
    def __init__(self, data: bytes, paths: tuple[Path, ...], /) -> None: ...
    def poison(self) -> None: ...

class PackedFilter: ...

class Prepared:
    bound: Bound
    packed: PackedFilter
    def __call__(self, *tensors: Any, out: Any = None) -> Any: ...

class Bound:
    def __init__(
        self,
        loaded: LoadedPlan,
        inputs: tuple[tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int], ...],
        slot_of: tuple[int, ...],
        result: tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int],
        filter: int,
        initial: int,
        refuse: Callable[[Slot, object, bool], None],
        overlap: Callable[[Slot, object, Slot, object], None],
        /,
    ) -> None: ...
    def __call__(self, *tensors: Any, out: Any = None) -> Any: ...
    def prepare(self, filter: Any, /) -> Prepared: ...
    def pack(self, filter: Any, packed: PackedFilter | None = None, /) -> PackedFilter: ...
    def run(self, inputs: tuple[Any, ...], out: Any, packed: PackedFilter | None = None, /) -> Any: ...
