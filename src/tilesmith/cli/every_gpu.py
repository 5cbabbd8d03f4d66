"""``--device all`` of verbs whose problems do not depend on each other: what goes to the process of a GPU, and back."""

from __future__ import annotations

import json
from typing import Any, Final

from tilesmith.cli.problem_list import Item
from tilesmith.fleet.everywhere import on_every_gpu
from tilesmith.fleet.executor import Tell
from tilesmith.fleet.processes import ALL
from tilesmith.problems.driver import RunOptions
from tilesmith.problems.keys import parse_key

__all__ = ["ALL", "LATE_S", "Tell", "on_every_gpu", "one_of", "received", "sent"]

LATE_S: Final = 600.0  # of one problem, beyond what it was given: then its process hangs


def one_of(device: str) -> str:
    """The device that stands for all of them where one is enough, such as for a target or a version."""
    return "cuda:0" if device == ALL else device


def sent(item: Item, options: dict[str, Any]) -> bytes:
    """A problem and the options of its verb."""
    return json.dumps({**item.row, "options": options}).encode()


def received(payload: bytes) -> tuple[Item, dict[str, Any]]:
    """The inverse of ``sent``."""
    row = json.loads(payload)
    return Item(row["command"], row["direction"], parse_key(row["key"]), RunOptions()), row["options"]
