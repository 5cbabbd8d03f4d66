"""The targets of a library, written as a list: ``sm_90a:132;x86_64-v4;aarch64:4``, or ``sm_90a_132`` as in MIOpen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tilesmith.errors import TargetError
from tilesmith.package.build import build_target
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target
from tilesmith.targets.cuda import CUDA_ARCHS
from tilesmith.targets.target import Target

# Threads of the plans of a CPU that is named by its arch alone. Plans run on fewer cores as well; on more cores they
# leave some idle.
THREADS: Final = 8
_PAIR = re.compile(r"(\w[\w-]*)_([1-9][0-9]{0,3})")


def library_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """The targets of a library, each once, in the order given.

    Args:
        texts: Each of them one target or several, separated by ``;``. A CPU's arch alone (``x86_64-v4``) is any
            processor of that arch with 8 threads; ``arch_cores`` is read as ``arch:cores``.

    Raises:
        TargetError: A target that does not exist, or none at all.
    """
    found: dict[str, Target] = {}
    for text in texts:
        for each in text.split(";"):
            if each.strip():
                target = _one(each.strip())
                found.setdefault(target.name, target)
    if not found:
        raise TargetError("no target: name at least one, such as --target 'sm_90a:132;x86_64-v4'")
    return tuple(found.values())


def _one(text: str) -> Target:
    if text in CPU_TARGETS:
        return cpu_target(text, THREADS)
    pair = _PAIR.fullmatch(text)
    if pair is not None and pair[1] in (*CPU_TARGETS, *CUDA_ARCHS):
        return build_target(f"{pair[1]}:{pair[2]}")
    return build_target(text)
