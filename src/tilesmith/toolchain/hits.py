"""What a hit found, in one file for the next process: what the databases chose, in which state they were, and the plan.

``hits/<key>.hit`` is bound to its name, which says the problem, the places of the databases and what generated the
plan. Its content is one line of JSON, then the plan. Who takes it must see first that the databases are as they were.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilesmith.errors import PlanError
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import Serial, decode, read_head
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.files import read
from tilesmith.toolchain.plans import digest_of, maker_of
from tilesmith.toolchain.sealed import bind, unbind

_FORMAT = "tilesmith hit 1"
_log = logging.getLogger("tilesmith.cache")


def find_hit(
    cache: ArtifactCache, problem: str, places: Sequence[str], target: Target
) -> tuple[dict[str, Any], Serial] | None:
    """What an earlier process kept, and the plan, whose artifacts are still to be found; None if that is nothing."""
    name = _name(problem, places, target)
    for folder in cache.folders():
        try:
            found = _content(name, read(f"{folder}/{name}", own=True))
        except (OSError, PlanError):
            continue  # what it was made from is asked, and says what is wrong there
        _log.debug("cache hit: %s/%s", folder, name)
        return found
    return None


def keep_hit(
    cache: ArtifactCache, problem: str, places: Sequence[str], target: Target, record: dict[str, Any], plan: Serial
) -> None:
    """Keep it for the next process, if the cache can be written; one that loses it asks the databases again."""
    name = _name(problem, places, target)
    payload = json.dumps(record).encode() + b"\n" + plan.data
    cache.offer(name, bind(name, payload), durable=False)


def plan_of_hit(path: Path, data: bytes) -> Plan:
    """The plan in a file of the cache; ``PlanError`` unless every byte is what was written under this name."""
    return decode(_content(f"hits/{path.name}", data)[1].data)


def _name(problem: str, places: Sequence[str], target: Target) -> str:
    return f"hits/{digest_of(_FORMAT, problem, *maker_of(target), *places)[:40]}.hit"


def _content(name: str, data: bytes) -> tuple[dict[str, Any], Serial]:
    payload = unbind(name, data)
    if payload is None:
        raise PlanError("it is damaged")
    line, _, plan = payload.partition(b"\n")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise PlanError("its first line is no record")
    return record, read_head(plan)
