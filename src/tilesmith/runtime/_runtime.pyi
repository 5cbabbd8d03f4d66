"""The C extension: see ``binding/``."""

from collections.abc import Callable
from typing import Any

from tilesmith.plan.records import Slot

def cuda_open(library: str | None, /) -> None: ...

class LoadedPlan:
    def __init__(self, data: bytes, artifacts: tuple[tuple[bytes, str], ...], /) -> None: ...
    def poison(self) -> None: ...
    def prepare_on(self, device: int, stream: int, slots: tuple[int, ...], packed: int, workspace: int, /) -> None: ...
    def run_on(self, device: int, stream: int, slots: tuple[int, ...], packed: int, workspace: int, /) -> None: ...
    def load_on(self, device: int, /) -> None: ...
    def pack_of(self, filter: Any, filter_address: int, owner: Any, address: int, /) -> PackedFilter: ...

class PackedFilter:
    filter: Any

class Prepared:
    bound: Bound
    packed: PackedFilter
    def __call__(self, *tensors: Any, out: Any = None) -> Any: ...

class Bound:
    origin: Any
    def __init__(
        self,
        loaded: LoadedPlan,
        inputs: tuple[tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int, bool], ...],
        slot_of: tuple[int, ...],
        result: tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int],
        filter: int,
        initial: int,
        refuse: Callable[[Slot, object, bool], None],
        overlap: Callable[[Slot, object, Slot, object], None],
        device_calls: Any = None,
        /,
    ) -> None: ...
    def __call__(self, *tensors: Any, out: Any = None) -> Any: ...
    def prepare(self, filter: Any, /) -> Prepared: ...
    def pack(self, filter: Any, packed: PackedFilter | None = None, /) -> PackedFilter: ...
    def run(self, inputs: tuple[Any, ...], out: Any, packed: PackedFilter | None = None, /) -> Any: ...
