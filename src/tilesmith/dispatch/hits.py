"""Answers of earlier processes, kept for the next one. They are valid as long as no file of the databases and no kernel
package has changed.

``hits/<key>.hit`` of the cache is bound to its name, which says the problem, the paths of the databases and what
generated the plan. It holds a record (the choice, the states of the databases that it comes from, those of the kernel
packages, and whether it stands for filters that each call packs, too), then the plan. Its kernels lie in the cache or
in a package. Another answer for filters that each call packs has a file of its own.
``recall`` reads it and imports nothing; ``keep`` writes it, in a process that has asked the databases.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from tilesmith import env
from tilesmith.db.layers import open_layers
from tilesmith.db.records import Record
from tilesmith.db.remote import is_url
from tilesmith.db.state import state_of
from tilesmith.dispatch.choice import DATABASE, BuiltPlan, Choice, Considered, Resolved
from tilesmith.dispatch.locations import DatabasePaths, open_databases
from tilesmith.dispatch.packages import Packages
from tilesmith.dispatch.request import Request
from tilesmith.errors import PlanError
from tilesmith.plan.serial import Serial, read_head
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import Artifact
from tilesmith.toolchain.files import read
from tilesmith.toolchain.plans import digest_of, maker_of, with_artifacts
from tilesmith.toolchain.sealed import bind_with_record, unbind_with_record

_FORMAT = "tilesmith hit 3"
_MODES = ("fast", "hybrid", "strict")  # those that take an answer of the databases as it is
_log = logging.getLogger("tilesmith.cache")


def recall(request: Request) -> Resolved | None:
    """The result that ``resolve`` would find now, if an earlier process has kept it."""
    named = _named(request)
    if named is None:
        return None
    found = _find(request, named)
    if found is None and not request.frozen:
        found = _find(replace(request, frozen=True), named)
        if found is not None and found[0].get("packing") is not True:
            return None
    if found is None:
        return None
    record, serial = found
    if record.get("states") != [state_of(path) for path in named.paths]:
        return None
    if record.get("packages") != _states_of(request.packages):
        return None
    choice = _choice_of(record.get("choice"))
    find = partial(_kernel, request) if request.packages.state else request.cache.find
    held = with_artifacts(serial, find, request.target, stale=False)
    if choice is None or held is None:
        return None
    if not request.strict:
        memo.remember(request.cache)
    return Resolved(choice, BuiltPlan(serial, held.artifacts, remembered=True))


def keep(request: Request, resolved: Resolved, look: Callable[[Request], Resolved | None]) -> None:
    """Keep the result if ``look``, with newly opened databases, finds the same result in every mode that may recall it.

    NOTE: the layers of this process may be older than their files: a copy in memory, or a file that another process has
    replaced. So the databases are opened again, once after each change.
    """
    from tilesmith.db.admission import why_refused

    named = _named(request)
    if (
        named is None or request.strict or resolved.choice.basis != DATABASE or not resolved.built.remembered
        or any(map(is_url, named.paths))
    ):  # fmt: skip
        return
    # If another process holds the file, this process read a copy. Reading it again would wait again.
    if not all(database.is_current() for database in open_databases(named).databases):
        return
    states = [state_of(path) for path in named.paths]
    if None in states or any(why_refused(Path(path)) is not None for path in named.paths):
        return
    layers = open_layers(named.paths, readonly=True, system=named.system)
    fresh = replace(request, databases=layers)
    # Strict mode may use answers that other modes may not use. If the answers differ, no hit is kept.
    found, strictly = look(fresh), look(replace(fresh, mode="strict"))
    other = look(replace(fresh, frozen=not request.frozen))
    layers.close()
    if found is None or strictly is None or not found.choice == strictly.choice == resolved.choice:
        return
    # The plan is today's generator's: what another made is made again as soon as there is a compiler.
    if states == [state_of(path) for path in named.paths]:
        packing = other is not None and other.choice == found.choice
        name = _name(replace(request, frozen=request.frozen or packing), named)
        packages = _states_of(request.packages)
        record = {"states": states, "packages": packages, "packing": packing, "choice": _values_of(found.choice)}
        # If the cache can be written; a process that loses it asks the databases again.
        request.cache.offer(name, bind_with_record(name, record, found.built.serial.data), durable=False)


def _named(request: Request) -> DatabasePaths | None:
    """The paths of the databases; None if a hit must not be used for them."""
    if request.mode not in _MODES or request.only or env.TUNING_SPEC_PATH.get() is not None:
        return None
    return request.databases if isinstance(request.databases, DatabasePaths) else None


def _find(request: Request, named: DatabasePaths) -> tuple[dict[str, Any], Serial] | None:
    """The record and the plan, without its artifacts; None if no hit is kept."""
    name = _name(request, named)
    for folder in request.cache.folders():
        try:
            record, plan = unbind_with_record(name, read(f"{folder}/{name}", own=True))
            found = record, read_head(plan)
        except (OSError, PlanError):
            continue  # the databases are asked, and say what is wrong there
        _log.debug("cache hit: %s/%s", folder, name)
        return found
    return None


def _kernel(request: Request, digest: str) -> Artifact | None:
    return request.cache.find(digest) or request.packages.binary(digest)


def _states_of(packages: Packages) -> list[Any]:
    """The states of the packages' files, as JSON values: equal if none has changed."""
    return [packages.nearest, *map(list, (*packages.state, *packages.consents))]


def _name(request: Request, named: DatabasePaths) -> str:
    # Besides the layers: which folders of other users were trusted for them.
    databases = (str(named.system), os.environ.get(env.TRUST_FOLDER.name, ""), *named.paths)
    made_by = (*maker_of(request.target), *databases, *(() if request.frozen else ("not frozen",)))
    return f"hits/{digest_of(_FORMAT, request.problem, *made_by)[:40]}.hit"


def _values_of(choice: Choice) -> list[Any]:
    """A choice as JSON values: the fields outside its record, the record, and the trace."""
    assert choice.record is not None
    return [choice.layer, choice.role, astuple(choice.record), [astuple(line) for line in choice.trace]]


def _choice_of(values: Any) -> Choice | None:
    """The choice of these values; None if this version of Tilesmith did not write them."""
    try:
        layer, role, fields, lines = values
        record, trace = Record(*fields), tuple([Considered(*line) for line in lines])
        texts: list[Any] = [layer, role]
        sound = record.ok
        for line in trace:
            texts += (line.solver, line.reason, line.config, line.layer)
            for number in (line.predicted_us, line.time_us, line.spread_us):
                sound = sound and (number is None or isfinite(number))
            sound = sound and type(line.chosen) is bool
        sound = sound and set(map(type, texts)) == {str}
    except (TypeError, ValueError, OverflowError):  # a field outside its rule is a ValueError, too
        return None
    if not sound:
        return None
    return Choice(record.solver, record.config, DATABASE, layer, record.time_us, trace, role, record)
