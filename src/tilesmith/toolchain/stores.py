"""Object stores through fsspec: the one place that imports it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tilesmith.errors import TilesmithError

# What fsspec needs for each scheme; `memory` is its own, for tests.
STORES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "memory": "fsspec"}


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path there. Raises ``ImportError`` that says what to install."""
    scheme = url.partition("://")[0].lower()
    try:
        core = import_module("fsspec.core")
        found: tuple[Any, str] = core.url_to_fs(url)
    except ImportError:
        needed = "pip install s3fs" if scheme == "s3" else "pip install gcsfs"
        raise ImportError(f"{url}: {scheme}:// needs another package: `{needed}`") from None
    return found


def as_os_errors(pieces: Iterator[Any]) -> Iterator[Any]:
    """The pieces. Errors of stores have many classes: here they become ``OSError``."""
    try:
        yield from pieces
    except (OSError, ValueError, ImportError, TilesmithError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
