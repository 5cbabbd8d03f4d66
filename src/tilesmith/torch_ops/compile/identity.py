"""A name of what the backend's decisions depend on beside the databases."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import tilesmith
from tilesmith import env
from tilesmith.torch_ops.compile.options import Options


def identity_of(options: Options) -> str:
    """Changes with options, version and settings; what the databases hold is compared decision by decision."""
    settings = [
        repr(variable.get())
        for variable in (env.FIND_MODE, env.ONLY_SOLVER, env.NUM_THREADS, env.EXTERNAL, env.TUNING_SPEC_PATH)
    ]
    about = (options, tilesmith.__version__, _sources(), settings)
    return hashlib.sha256(repr(about).encode()).hexdigest()


@cache
def _sources() -> str:
    """The text of the operators and of the pass."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
