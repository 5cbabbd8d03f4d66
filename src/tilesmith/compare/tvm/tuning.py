"""Tunes products by MetaSchedule, in TVM's environment; what is found is kept by problem, target and version."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilesmith.compare.commands import follow
from tilesmith.compare.places import keep, kept_path, read_kept
from tilesmith.compare.tvm.environment import python, version
from tilesmith.errors import CompileError, OutOfTimeError, shortened
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget, Target

TRIALS = 64  # of a product, where the words name no number
_GRACE_S = 120.0  # after the time for tuning: the last batch, and the export of the best kernel
_TUNER = Path(__file__).with_name("tuner.py")
_TYPES = {"fp32": "float32", "fp64": "float64", "fp16": "float16"}
_TOLD = "told: "


def computes(signature: Signature) -> bool:
    """Whether the problem is a plain product that is tuned: no epilogue, ``alpha`` 1, dense operands, no TF32."""
    if not isinstance(signature, GemmSignature):
        return False
    g = signature.geometry
    plain = not g.groups and g.beta == 0 and g.alpha == 1.0 and g.epilogue.is_identity and not g.tf32
    dense = (signature.lda, signature.ldb, signature.ldc) == (None, None, None)
    return plain and dense and g.a.dtype == g.b.dtype == g.c.dtype and g.a.dtype in _TYPES


def kept(signature: Signature, target: Target) -> Path:
    """The file that says what was found; beside it lie the library (``.so``) and the folder of trials."""
    return kept_path("tvm", signature.canonical.key(), target.name, version())


def library_of(path: Path) -> Path:
    """The library beside the file of ``kept``."""
    return path.with_suffix(".so")


def found(signature: Signature, target: Target) -> dict[str, Any] | None:
    """The result of a search: ``trials`` and ``best_us``; None without a library."""
    path = kept(signature, target)
    held = read_kept(path)
    return held if isinstance(held, dict) and library_of(path).exists() else None


def tune(
    signature: GemmSignature, target: Target, trials: int, seconds: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Tune a product; trials of earlier searches count.

    Args:
        signature: The product; ``computes`` must hold.
        target: Where it runs.
        trials: In all.
        seconds: After these no further batch of trials is begun.
        tell: Called with lines of progress.

    Returns:
        ``trials`` and ``best_us``, by TVM's own measuring.

    Raises:
        CompileError: TVM fails.
        OutOfTimeError: It did not end.
    """
    path = kept(signature, target)
    folder = path.with_suffix(".trials")
    folder.mkdir(parents=True, exist_ok=True)
    g, on_gpu = signature.geometry, isinstance(target, CudaTarget)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace("/", "-")  # parts of cards have names with slashes
    asked = {
        "m": g.m, "n": g.n, "k": g.k, "batch": g.batch, "trans_a": signature.trans_a, "trans_b": signature.trans_b,
        "dtype": _TYPES[g.a.dtype], "arch": target.arch if isinstance(target, CudaTarget) else "",
        "threads": target.cores, "cores": len(os.sched_getaffinity(0)) if on_gpu else target.cores, "trials": trials,
        "seconds": seconds, "folder": str(folder), "out": str(library_of(path)),
        "turns": str(path.with_name(f"turns.{visible if on_gpu else 'cpu'}")),
    }  # fmt: skip
    state: dict[str, Any] = {}
    lines: list[str] = []

    def heard(line: str) -> None:
        if line.startswith(_TOLD):
            state.update(json.loads(line.removeprefix(_TOLD)))
            best = f", best {state['best_us']:.1f} us" if state["best_us"] else ""
            tell(f"TVM: {state['trials']} of {trials} trials{best}")
        elif line.strip():
            lines.append(line.strip())

    variables = {**os.environ, "TVM_NUM_THREADS": str(target.cores)} if not on_gpu else dict(os.environ)
    for name in ("PYTHONPATH", "PYTHONHOME"):
        variables.pop(name, None)
    try:
        status = follow(
            [str(python()), str(_TUNER)], seconds + _GRACE_S, heard, given=json.dumps(asked), environment=variables
        )
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(f"TVM did not end {_GRACE_S:.0f} s after its time; its trials are kept") from None
    except OSError as error:
        raise CompileError(f"TVM cannot be begun: {error}") from None
    if status != 0 or not state.get("exported"):
        raise CompileError(shortened(f"TVM fails ({status}): {lines[-1] if lines else 'it says nothing'}"))
    keep(path, {"trials": state["trials"], "best_us": state["best_us"]})
    return {"trials": state["trials"], "best_us": state["best_us"]}
