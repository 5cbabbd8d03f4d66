"""The options and modes of the backend ``tilesmith``, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tilesmith.errors import ArgumentError

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
TUNE_S = 120.0  # of ``mode="max-autotune"``


@dataclass(frozen=True)
class Options:
    """The options of ``torch.compile(model, backend="tilesmith", mode=..., options={...})``.

    Args:
        freeze: Treat parameters as constants in inference: fold batch norm, pack filters once. None: as
            ``torch._inductor.config.freezing`` says.
        tune: Seconds to search kernels when a graph is compiled, from 0. None: 0, and 120 with ``mode="max-autotune"``.
        ours: ``"auto"``: Tilesmith's kernel where a database or an estimate says that it wins. ``"always"``: wherever a
            kernel exists. ``"never"``: nowhere, so that the rest of the backend can be measured.
        inductor: Options of Inductor, as ``torch.compile(model, options=...)`` takes them.
        mode: ``"default"``, ``"reduce-overhead"``, ``"max-autotune"`` or ``"max-autotune-no-cudagraphs"``: the argument
            of ``torch.compile``, which takes no options beside it.
    """

    freeze: bool | None = None
    tune: float | None = None
    ours: str = "auto"
    inductor: tuple[tuple[str, Any], ...] = ()
    mode: str = "default"

    @property
    def tune_seconds(self) -> float:
        if self.tune is not None:
            return self.tune
        return TUNE_S if self.mode.startswith("max-autotune") else 0.0


KNOWN = tuple(field.name for field in fields(Options))


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """The options, or ``ArgumentError`` with the name or value that breaks a rule."""
    options = dict(options or {})
    mode = mode or options.get("mode") or "default"
    if mode not in MODES:
        raise ArgumentError(f"mode {mode!r} of backend 'tilesmith' does not exist; known: {', '.join(MODES)}")
    for name in options:
        if name not in KNOWN:
            raise ArgumentError(
                f"option {name!r} of backend 'tilesmith' does not exist; known: {', '.join(KNOWN)} "
                "(options of Inductor go into the option 'inductor')"
            )
    freeze, tune = options.get("freeze"), options.get("tune")
    if freeze is not None and not isinstance(freeze, bool):
        raise ArgumentError(f"option 'freeze' must be True, False or None, got {freeze!r}")
    if tune is not None and (
        isinstance(tune, bool) or not isinstance(tune, int | float) or not (math.isfinite(tune) and tune >= 0)
    ):
        raise ArgumentError(f"option 'tune' must be a number of seconds from 0, got {tune!r}")
    ours = options.get("ours", "auto")
    if ours not in ("auto", "always", "never"):
        raise ArgumentError(f"option 'ours' must be 'auto', 'always' or 'never', got {ours!r}")
    inductor = options.get("inductor") or {}
    if not isinstance(inductor, Mapping):
        raise ArgumentError(f"option 'inductor' must be a dict of Inductor's options, got {inductor!r}")
    return Options(freeze, None if tune is None else float(tune), ours, tuple(sorted(inductor.items())), mode)


def patches_of(options: Options) -> dict[str, Any]:
    """Inductor's configuration for these options.

    Raises ``ArgumentError`` for an option that Inductor does not know.
    """
    import torch
    from torch._inductor import config, list_mode_options

    patches: dict[str, Any] = {} if options.mode == "default" else dict(list_mode_options(options.mode))
    if config.cpp.vec_isa_ok is None and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        # Inductor compiles and loads a program for each instruction set, in each process, to see whether it works.
        # Kernels of PyTorch with these instructions run in this process already.
        patches["cpp.vec_isa_ok"] = True
    known = config.get_config_copy()
    for name, value in options.inductor:
        key = name.replace("-", "_")
        if key not in known:
            raise ArgumentError(f"Inductor has no option {name!r}; `torch._inductor.list_options()` lists them")
        patches[key] = value
    return patches
