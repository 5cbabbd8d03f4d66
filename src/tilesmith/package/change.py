"""Packages compared and changed: pure functions of packages in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tilesmith.db.exchange import NEWEST, POLICIES
from tilesmith.db.records import Record
from tilesmith.errors import PackageError
from tilesmith.package.files import records_in
from tilesmith.package.making import artifacts_of, ranked, row_entries
from tilesmith.package.records import MIXED, KernelPackage, Kind, PackageEntry
from tilesmith.plan.serial import decode

ONLY_FIRST, ONLY_SECOND, DIFFERS = "only in the first", "only in the second", "differs"
MANIFEST = "manifest"


@dataclass(frozen=True)
class Difference:
    """One entry, or one field of the manifest, that two packages do not share.

    ``kind`` is the entry's, in small letters, or ``manifest``; ``name`` the entry's, or the field; ``what`` is one of
    ``only in the first``, ``only in the second`` and ``differs``.
    """

    kind: str
    name: str
    rank: int
    what: str


def diff(first: KernelPackage, second: KernelPackage) -> tuple[Difference, ...]:
    """The differences of two packages, in the order of the entries; empty for packages of the same content."""
    found = [
        Difference(MANIFEST, name, 0, DIFFERS)
        for name, value in vars(first.manifest).items()
        if value != getattr(second.manifest, name)
    ]
    left, right = ({entry.key: entry for entry in package.entries} for package in (first, second))
    for key in sorted(left.keys() | right.keys()):
        one, other = left.get(key), right.get(key)
        entry = one or other
        assert entry is not None
        what = ONLY_SECOND if one is None else ONLY_FIRST if other is None else ""
        if one is not None and other is not None and _facts(one) != _facts(other):
            what = DIFFERS
        if what:
            found.append(Difference(entry.kind.name.lower(), entry.name, entry.rank, what))
    return tuple(found)


def _facts(entry: PackageEntry) -> tuple[object, ...]:
    """The content that is compared: the same content may be deflated in other ways."""
    return entry.size, entry.digest, entry.revision, entry.time_us


def merge(packages: Sequence[KernelPackage], policy: str = NEWEST) -> KernelPackage:
    """One package with all that several have.

    Of plans with the same problem, target, solver and config the last package's stays; the others are ranked by their
    times. Of rows with the same key ``policy`` (``db.exchange.POLICIES``) says which stays, the later package's being
    the incoming one. The manifest is the first one's, with the highest counter and date.

    Raises:
        PackageError: The packages are of different targets, or one is damaged.
    """
    if not packages:
        raise PackageError("nothing to merge")
    manifests = [package.manifest for package in packages]
    other = next((m for m in manifests if m.target != manifests[0].target), None)
    if other is not None:
        raise PackageError(
            f"packages of different targets cannot be merged: {manifests[0].name} is of {manifests[0].target}, "
            f"{other.name} of {other.target}"
        )
    generators = {m.generator for m in manifests}
    manifest = replace(
        manifests[0], counter=max(m.counter for m in manifests), date=max(m.date for m in manifests),
        generator=manifests[0].generator if len(generators) == 1 else MIXED,
    )  # fmt: skip
    groups: dict[tuple[Kind, str], list[PackageEntry]] = defaultdict(list)
    for package in packages:
        for entry in package.entries:
            groups[entry.kind, entry.name].append(entry)
    entries: list[PackageEntry] = []
    for (kind, _), group in groups.items():
        if len({_facts(entry) for entry in group}) == 1 or kind == Kind.BINARY:  # a binary's name is its content
            entries.append(group[-1])
        elif kind == Kind.PLAN:
            entries += _merged_plans(group)
        else:
            entries += row_entries(kind, _merged_rows(kind, group, policy))
    return _with_needed_binaries(KernelPackage(manifest, tuple(sorted(entries, key=lambda entry: entry.key))))


def _merged_plans(group: Iterable[PackageEntry]) -> tuple[PackageEntry, ...]:
    last: dict[tuple[str, str], PackageEntry] = {}
    for entry in group:
        plan = decode(entry.content())
        last[plan.solver, plan.config] = entry
    return ranked(last.values())


def _merged_rows(kind: Kind, group: Iterable[PackageEntry], policy: str) -> Iterable[Record]:
    held: dict[tuple[str, str], Record] = {}
    wins = POLICIES[policy]
    for entry in group:
        for record in records_in(kind, entry.content()):
            key = (record.solver, record.config if kind == Kind.PERF else "")
            if key not in held or wins(record, held[key]):
                held[key] = record
    return held.values()


def remove(package: KernelPackage, goes: Callable[[PackageEntry], bool]) -> KernelPackage:
    """The package without the entries that ``goes`` names, and without the binaries that no plan counts any more.

    ``goes`` is not asked for binaries. The plans that are left of a problem keep their order.
    """
    kept = [entry for entry in package.entries if entry.kind == Kind.BINARY or not goes(entry)]
    plans: dict[str, list[PackageEntry]] = defaultdict(list)
    for entry in kept:
        if entry.kind == Kind.PLAN:
            plans[entry.name].append(entry)
    renumbered = [replace(entry, rank=rank) for group in plans.values() for rank, entry in enumerate(group)]
    others = [entry for entry in kept if entry.kind != Kind.PLAN]
    entries = sorted([*renumbered, *others], key=lambda entry: entry.key)
    return _with_needed_binaries(KernelPackage(package.manifest, tuple(entries)))


def _with_needed_binaries(package: KernelPackage) -> KernelPackage:
    needed = {digest for entry in package.of_kind(Kind.PLAN) for digest in artifacts_of(entry)}
    entries = tuple(entry for entry in package.entries if entry.kind != Kind.BINARY or entry.name in needed)
    return replace(package, entries=entries)
