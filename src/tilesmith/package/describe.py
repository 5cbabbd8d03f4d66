"""Describes a package for people."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.errors import PackageError, PlanError
from tilesmith.package.files import PackageFile, records_in
from tilesmith.package.records import Kind, PackageEntry
from tilesmith.package.trust import examine
from tilesmith.plan.serial import decode, read_head


@dataclass(frozen=True)
class PackageSummary:
    """Facts of a package: its manifest and counts.

    ``signed`` is the signer's public key in hex, empty if there is none; ``signer`` the name of the trusted key, empty
    if it is not trusted; ``trust`` says why the package would be refused as one from a URL; ``identity`` is the digest
    of all but the signature; ``targets`` are those that its rows are for.
    """

    file: str
    bytes: int
    name: str
    target: str
    maker: str
    generator: str
    counter: int
    date: int
    signed: str
    signer: str
    trust: str
    identity: str
    problems: int
    plans: int
    binaries: int
    find_rows: int
    perf_rows: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class EntrySummary:
    """One entry: ``solver`` and ``config`` of a plan; ``rows`` of a database's entry.

    ``bytes`` counts its content, ``stored`` what it takes in the file; ``time_us`` is None where nothing was measured.
    """

    kind: str
    problem: str
    target: str
    rank: int
    solver: str
    config: str
    revision: int
    time_us: float | None
    rows: int
    bytes: int
    stored: int
    digest: str


def summary(package: PackageFile, nbytes: int) -> PackageSummary:
    """The facts of a package of so many bytes. Raises ``PackageError`` where it is damaged."""
    entries = list(package.entries())
    counts = {kind: [entry for entry in entries if entry.kind == kind] for kind in Kind}
    rows = {
        kind: sum(len(records_in(kind, each.content())) for each in counts[kind]) for kind in (Kind.FIND, Kind.PERF)
    }
    m, signer = package.manifest, examine(package)
    return PackageSummary(
        package.path, nbytes, m.name, m.target, m.maker, m.generator, m.counter, m.date, package.public_key.hex(),
        signer.name, signer.problem or "trusted", package.identity,
        len({entry.problem for entry in counts[Kind.PLAN]}), len(counts[Kind.PLAN]),
        len(counts[Kind.BINARY]), rows[Kind.FIND], rows[Kind.PERF],
        tuple(sorted({entry.target for kind in (Kind.FIND, Kind.PERF) for entry in counts[kind]})),
    )  # fmt: skip


def withdrawn_plans(package: PackageFile) -> int:
    """How many plans have kernels that compute wrong numbers. Raises ``PackageError`` for a damaged one."""
    plans = (entry for entry in package.entries() if entry.kind == Kind.PLAN)
    try:
        return sum(bool(read_head(plan.content()).withdrawn) for plan in plans)
    except PlanError as error:
        raise PackageError(f"{package.path}: {error}") from None


def describe(entry: PackageEntry) -> EntrySummary:
    """Describes an entry. Raises ``PackageError`` where it is damaged."""
    solver = config = ""
    rows = 0
    if entry.kind == Kind.PLAN:
        try:
            plan = decode(entry.content())
        except PlanError as error:
            raise PackageError(f"the plan of {entry.problem} cannot be read: {error}") from None
        solver, config = plan.solver, plan.config
    elif entry.kind != Kind.BINARY:
        rows = len(records_in(entry.kind, entry.content()))
        solver = entry.name.split("\n")[2] if entry.kind == Kind.PERF else ""
    return EntrySummary(
        entry.kind.name.lower(), entry.problem, entry.target, entry.rank, solver, config, entry.revision,
        entry.time_us or None, rows, entry.size, len(entry.stored), entry.digest,
    )  # fmt: skip
