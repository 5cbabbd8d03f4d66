"""A library from problems, targets, databases and packages: what dispatch would launch on each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.db.layers import Layers
from tilesmith.dispatch.choice import DATABASE, Choice
from tilesmith.errors import NoSolutionError, PackageError, TargetError
from tilesmith.package.build import PackedProblem, Rows, assemble_package, pack_problems
from tilesmith.package.change import merge, remove
from tilesmith.package.embed.link import LinkedProblem, Wanted, link_plan, link_problems
from tilesmith.package.embed.records import Library, TargetPart
from tilesmith.package.making import PackedPlan
from tilesmith.package.records import KernelPackage, Kind, PackageEntry
from tilesmith.package.selection.rules import Selection
from tilesmith.package.selection.size import Costs, fit_size, package_costs
from tilesmith.plan.serial import decode, read_head
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.cache import ArtifactCache

Listener = Callable[[Target, PackedProblem], None]


@dataclass(frozen=True)
class LibraryRequest:
    """The inputs of a library.

    Args:
        name: Of the library, an identifier of C.
        version: ``major.minor.patch``.
        signatures: The problems. Empty: all those of ``packages``.
        targets: The targets. Empty: those of ``packages``.
        packages: Packages whose plans come before those of databases and estimates, each for its own target.
        plans: Of each problem and target at most.
        rows: Whether the find-db's rows of the problems go in.
        trials: Whether the perf-db's do, too.
        selection: Lets in problems and kernels; its ``size`` counts for each target. None: any.
    """

    name: str
    version: str
    signatures: tuple[Signature, ...]
    targets: tuple[Target, ...]
    packages: tuple[KernelPackage, ...] = ()
    plans: int = 1
    rows: bool = True
    trials: bool = False
    selection: Selection | None = None


def make_library(
    request: LibraryRequest, layers: Layers, cache: ArtifactCache, listener: Listener | None = None,
    jobs: int | None = None,
) -> Library:  # fmt: skip
    """The library, before any of its files is written. GPU kernels are compiled, those of CPUs are not yet.

    Args:
        request: What goes in.
        layers: Databases, which are only read.
        cache: Where GPU kernels are found, and go.
        listener: Called with each target and problem when it is done. None: no calls.
        jobs: Compilers at a time. None: one for each usable core.

    Raises:
        NoSolutionError: No problem has a plan for one of the targets.
        PackageError: A package is damaged.
        TargetError: There is neither a target nor a package.
    """
    library = Library(request.name, request.version, ())  # checks the name before any work
    packages = {package.manifest.target: package for package in _merged(request.packages)}
    targets = request.targets or tuple(parse_target(name) for name in packages)
    if not targets:
        raise TargetError("no target: name at least one, such as --target 'sm_90a:132;x86_64-v4'")
    names = {target.name for target in targets}
    other = next((package for name, package in packages.items() if name not in names), None)
    if other is not None:
        raise PackageError(
            f"package {other.manifest.name} is for {other.manifest.target}, which is none of the library's targets "
            f"({', '.join(names)})"
        )
    parts = []
    for target in targets:
        package = packages.get(target.name)
        if isinstance(target, CpuTarget):
            part = _cpu_part(request, target, package, layers, cache, listener)
        else:
            part = _cuda_part(request, target, package, layers, cache, listener, jobs)
        if not any(problem.plans for problem in part.problems):
            raise NoSolutionError(f"no problem has a plan for {target.name}; leave this target out")
        parts.append(part)
    return Library(library.name, library.version, tuple(parts))


def _merged(packages: Sequence[KernelPackage]) -> list[KernelPackage]:
    """One package for each target, without the plans whose kernels are known to compute wrong numbers."""
    by_target: dict[str, list[KernelPackage]] = {}
    for package in packages:
        sound = remove(package, lambda entry: entry.kind == Kind.PLAN and bool(read_head(entry.content()).withdrawn))
        by_target.setdefault(package.manifest.target, []).append(sound)
    return [merge(group) if len(group) > 1 else group[0] for group in by_target.values()]


def _cpu_part(
    request: LibraryRequest, target: CpuTarget, package: KernelPackage | None, layers: Layers, cache: ArtifactCache,
    listener: Listener | None,
) -> TargetPart:  # fmt: skip
    """Of a package the choices are taken: its kernels are made again, as C text."""
    held = _plans_of(package, request.signatures)
    linked: list[LinkedProblem] = []
    for key, entries in held.items():
        linked += [_from_package(parse_key(key), target, entries[: request.plans])]
        if listener is not None:
            listener(target, linked[-1].packed)
    rest = [each for each in request.signatures if each.canonical.key() not in held]
    linked += link_problems(rest, target, layers, cache, request.plans, _told(listener, target), request.selection)
    kernels = {kernel.digest: kernel for each in linked for kernel in each.kernels}
    costs = Costs(package_costs().plan, lambda artifact: kernels[artifact.digest].expected_bytes)
    problems = _fitting(request, target, [each.packed for each in linked], costs)
    counted = {artifact.digest for problem in problems for artifact in problem.artifacts}
    kernels = {digest: kernel for digest, kernel in kernels.items() if digest in counted}
    made = _assembled(request, target, problems, layers, frozenset(kernels))
    if package is not None and request.rows:
        rows = _only(package, request.signatures, {Kind.FIND, Kind.PERF} if request.trials else {Kind.FIND})
        made = merge([made, rows])
    return TargetPart(target, made, tuple(kernels.values()), problems)


def _cuda_part(
    request: LibraryRequest, target: Target, package: KernelPackage | None, layers: Layers, cache: ArtifactCache,
    listener: Listener | None, jobs: int | None,
) -> TargetPart:  # fmt: skip
    held = _plans_of(package, request.signatures)
    rest = [each for each in request.signatures if each.canonical.key() not in held]
    packed = pack_problems(rest, target, layers, cache, jobs, _told(listener, target), request.plans, request.selection)
    problems = _fitting(request, target, packed, package_costs())
    made = _assembled(request, target, problems, layers, frozenset())
    if package is None:
        return TargetPart(target, made, (), problems)
    kinds = {Kind.PLAN, Kind.BINARY} | ({Kind.FIND} if request.rows else set())
    kinds |= {Kind.PERF} if request.rows and request.trials else set()
    made = merge([made, _only(package, request.signatures, kinds)])
    taken = tuple(_taken(parse_key(key), entries) for key, entries in held.items())
    for each in taken:
        if listener is not None:
            listener(target, each)
    return TargetPart(target, made, (), (*taken, *problems))


def _taken(signature: Signature, entries: Sequence[PackageEntry]) -> PackedProblem:
    """A problem whose plans stay as a package has them."""
    plans = [decode(entry.content()) for entry in entries]
    choices = [
        Choice(plan.solver, plan.config, DATABASE, "", entry.time_us or None, ())
        for plan, entry in zip(plans, entries, strict=True)
    ]
    return PackedProblem(
        signature, tuple(choices), tuple(PackedPlan(e.content(), e.revision, e.time_us) for e in entries)
    )


def _fitting(
    request: LibraryRequest, target: Target, problems: Sequence[PackedProblem], costs: Costs
) -> tuple[PackedProblem, ...]:
    """The part of one target that the selection's size allows."""
    if request.selection is None or request.selection.size is None:
        return tuple(problems)
    return fit_size(problems, target, request.selection.size, costs)


def _assembled(
    request: LibraryRequest, target: Target, problems: Sequence[PackedProblem], layers: Layers,
    linked: frozenset[str],
) -> KernelPackage:  # fmt: skip
    rows = Rows((), request.trials) if request.rows else None
    name = request.name.lower().strip("_")
    return assemble_package(name, target, problems, layers, rows, selection=request.selection, linked=linked)


def _from_package(signature: Signature, target: CpuTarget, entries: Sequence[PackageEntry]) -> LinkedProblem:
    """Its plans, the best first, made again; the first that cannot be made says why if none can."""
    found = []
    for entry in entries:
        plan = decode(entry.content())
        found.append(link_plan(signature, target, Wanted(plan.solver, plan.config, entry.time_us)))
    made = [each for each in found if each.packed.plans]
    if not made:
        return found[0]
    packed = [each.packed for each in made]
    choices, plans, texts = (
        tuple(dict.fromkeys(item for each in packed for item in getattr(each, name)))
        for name in ("choices", "plans", "artifacts")
    )
    kernels = dict.fromkeys(kernel for each in made for kernel in each.kernels)
    return LinkedProblem(PackedProblem(signature, choices, plans, texts), tuple(kernels))


def _plans_of(package: KernelPackage | None, signatures: Sequence[Signature]) -> Mapping[str, list[PackageEntry]]:
    """The plans of a package for its own target by the problem's key, best first; of these problems, or of all."""
    found: dict[str, list[PackageEntry]] = {}
    if package is None:
        return found
    keys = {signature.canonical.key() for signature in signatures}
    for entry in package.of_kind(Kind.PLAN):
        if entry.target == package.manifest.target and (not keys or entry.problem in keys):
            found.setdefault(entry.problem, []).append(entry)
    return found


def _only(package: KernelPackage, signatures: Sequence[Signature], kinds: set[Kind]) -> KernelPackage:
    """The entries of these problems (none given: of all) and kinds, with the binaries that they count."""
    keys = {signature.canonical.key() for signature in signatures}
    return remove(package, lambda entry: entry.kind not in kinds or bool(keys and entry.problem not in keys))


def _told(listener: Listener | None, target: Target) -> Callable[[PackedProblem], None] | None:
    return None if listener is None else lambda packed: listener(target, packed)
