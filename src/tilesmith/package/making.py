"""A package from plans, binaries and records. What is chosen is decided elsewhere: here it is put together."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilesmith.db.lines import line_of
from tilesmith.db.records import Record
from tilesmith.db.store import Table, in_order
from tilesmith.errors import PackageError
from tilesmith.package.records import KernelPackage, Kind, Manifest, PackageEntry, name_of, new_entry
from tilesmith.plan.serial import decode, read_head


@dataclass(frozen=True)
class PackedPlan:
    """A plan for a package: its serialised form, its solver's revision, and its measured median (0: not measured)."""

    data: bytes
    revision: int = 0
    time_us: float = 0.0


def make_package(
    manifest: Manifest, plans: Iterable[PackedPlan], binaries: Mapping[str, bytes],
    results: Iterable[Record] = (), trials: Iterable[Record] = (), linked: Collection[str] = (),
) -> KernelPackage:  # fmt: skip
    """The package of these plans and rows, whatever their order.

    Args:
        manifest: Its header.
        plans: Of each problem and target any number; the fastest is the best one, those that were not measured follow
            in the order given.
        binaries: The compiled kernels by their digest; those that no plan counts are left out.
        results: Rows of the find-db, of any targets.
        trials: Rows of the perf-db.
        linked: Digests of kernels that the program links: plans count them, and the package does not hold them.

    Raises:
        PackageError: A binary is missing or another than its digest says, or an entry breaks a rule.
        PlanError: A plan is damaged.
    """
    entries: list[PackageEntry] = []
    wanted: dict[str, None] = {}
    by_name: dict[str, list[PackedPlan]] = defaultdict(list)
    for packed in dict.fromkeys(plans):
        plan = decode(packed.data)
        wanted.update(dict.fromkeys(plan.artifacts))
        by_name[name_of(plan.problem, plan.target)].append(packed)
    for name, group in by_name.items():
        entries += ranked(plan_entry(name, packed) for packed in group)
    for digest in [digest for digest in wanted if digest not in linked]:
        data = binaries.get(digest)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise PackageError(
                f"a plan counts the binary {digest}, which is {'missing' if data is None else 'another'}"
            )
        entries.append(new_entry(Kind.BINARY, digest, data))
    entries += row_entries(Kind.FIND, results)
    entries += row_entries(Kind.PERF, trials)
    return KernelPackage(manifest, tuple(sorted(entries, key=lambda entry: entry.key)))


def plan_entry(name: str, packed: PackedPlan) -> PackageEntry:
    return new_entry(Kind.PLAN, name, packed.data, 0, packed.revision, packed.time_us)


def ranked(plans: Iterable[PackageEntry]) -> tuple[PackageEntry, ...]:
    """The plans of one name with their ranks: by their times; those without one last, in the order given."""
    ordered = sorted(plans, key=lambda entry: entry.time_us or float("inf"))
    return tuple(
        PackageEntry(e.kind, e.name, e.stored, e.form, e.size, e.digest, rank, e.revision, e.time_us)
        for rank, e in enumerate(ordered)
    )


def row_entries(kind: Kind, records: Iterable[Record]) -> tuple[PackageEntry, ...]:
    """The entries of rows of the find-db (``FIND``) or the perf-db (``PERF``), each with the fastest row first."""
    table: Table = "results" if kind == Kind.FIND else "trials"
    by_name: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        last = () if kind == Kind.FIND else (record.solver,)
        by_name[name_of(record.problem, record.target, *last)].append(record)
    return tuple(
        new_entry(kind, name, "".join(f"{line_of(table, record)}\n" for record in in_order(group)).encode())
        for name, group in by_name.items()
    )


def artifacts_of(entry: PackageEntry) -> tuple[str, ...]:
    """The digests of the binaries that a plan's entry counts."""
    return read_head(entry.content()).artifacts
