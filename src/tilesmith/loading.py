"""Imports modules that Ctrl-C must not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, ModuleType


def import_whole(name: str) -> ModuleType:
    """Import a module; Ctrl-C in the meantime takes effect once it is imported.

    For PyTorch and what imports it: its C++ code calls Python while it is imported, and a ``KeyboardInterrupt`` there
    ends the process ("terminate called after throwing an instance of 'pybind11::error_already_set'"). Raises what the
    import raises.
    """
    with _interrupts_held():
        return import_module(name)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Deliver a SIGINT of the block at its end. Python runs handlers in the main thread alone, so elsewhere none is."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # ignored, or not Python's to handle
        return
    came = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
