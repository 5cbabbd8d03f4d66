"""Keeps the decisions for a graph, for a process that finds the compiled graph in PyTorch's cache.

A file belongs to one graph of Dynamo. It holds the decisions and a mark, which is a part of the keys of PyTorch's
caches: a process that decides alike uses the mark again and so finds the compiled graph; one that decides otherwise
(another database, say) compiles anew under a new mark. A damaged or missing file costs a compilation.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from tilesmith.dispatch.locations import open_cache
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.toolchain.files import exclusive, publish, read
from tilesmith.torch_ops.compile.report import Line

_FORMAT = 1
_PATIENCE_S = 60.0
_BEGAN = time.time()
_log = logging.getLogger("tilesmith.compile")


@dataclass(frozen=True)
class Kept:
    """Decisions of one graph, and the mark of its compiled form."""

    mark: str
    lines: tuple[Line, ...]


def new_mark() -> str:
    return secrets.token_hex(16)


def name_of(gm: GraphModule, inputs: Sequence[Any], identity: str) -> str:
    """A name for the decisions of this graph with such inputs."""
    shapes = [
        (tuple(map(str, each.shape)), tuple(map(str, each.stride())), str(each.dtype), each.device.type)
        if isinstance(each, torch.Tensor) else str(each)
        for each in inputs
    ]  # fmt: skip
    about = (identity, gm.code, shapes, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.__version__)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:40]


def keep(name: str, kept: Kept) -> None:
    """Keep the decisions of a graph; where the cache cannot be written, nothing is kept."""
    data = json.dumps({"format": _FORMAT, **asdict(kept)}).encode()
    root, path = _place(name)
    try:
        publish(root, path, data, durable=False)
    except OSError as error:
        _log.info("decisions are not kept: %s", error)


def recall(name: str) -> Kept | None:
    """The decisions that an earlier process kept."""
    _, path = _place(name)
    try:
        found = json.loads(read(str(path), own=True))
        if found["format"] != _FORMAT:
            return None
        lines = tuple(Line(**{**line, "fused": tuple(line["fused"])}) for line in found["lines"])
        return Kept(str(found["mark"]), lines)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        _log.warning("decisions in %s are not read: %s", path, error)
        return None


@contextmanager
def alone(name: str, seconds: float) -> Iterator[dict[str, bool]]:
    """In a job of several processes: one at a time decides this graph, and the others take over what it decided.

    Processes that share a cache folder agree by this file; on machines with folders of their own they agree if their
    databases hold the same. Waiting ends ``seconds`` and a minute after it began.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        yield {}
        return
    with exclusive(Path(open_cache().directory), name, seconds + _PATIENCE_S):
        kept = recall(name) if _is_of_this_job(name) else None
        yield {line.problem: line.ours for line in kept.lines} if kept is not None else {}


def _is_of_this_job(name: str) -> bool:
    """Whether a file was written since the processes of this job began; what lies there from before does not count."""
    try:
        return _place(name)[1].stat().st_mtime >= _BEGAN - _PATIENCE_S
    except OSError:
        return False


def signatures_of(lines: Sequence[Line]) -> list[Signature]:
    """The problems that Tilesmith's kernels run."""
    return [parse_key(line.problem) for line in lines if line.ours]


def _place(name: str) -> tuple[Path, Path]:
    root = Path(open_cache().directory)
    return root, root / "graphs" / f"{name}.json"
