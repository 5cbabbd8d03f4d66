"""The environment of Python processes that run modules of this package."""

from __future__ import annotations

import os
from pathlib import Path


def child_environment() -> dict[str, str]:
    """This process's environment, in which a child's ``python -m tilesmith...`` finds this same package first."""
    folder = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}
