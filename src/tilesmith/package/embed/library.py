"""The whole way from problems to a built C library: gather, write, build."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tilesmith.db.layers import Layers
from tilesmith.errors import ArgumentError
from tilesmith.package.embed.folder import write_project
from tilesmith.package.embed.gather import LibraryRequest, Listener, make_library
from tilesmith.package.embed.making import build_project
from tilesmith.package.embed.project import ProjectOptions, project_files
from tilesmith.package.files import PackageFile
from tilesmith.package.install import Rules, install
from tilesmith.package.records import KernelPackage, Kind
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.files import scratch

_VERSION = re.compile(r"(0|[1-9][0-9]{0,4})(\.(0|[1-9][0-9]{0,4})){2}")


@dataclass(frozen=True)
class ProjectReport:
    """The result of ``embed``: counts of the library, how many files it wrote, and each built library with its bytes.

    ``unbuilt`` are processors of its targets for which nothing was built.
    """

    folder: str
    name: str
    targets: tuple[str, ...]
    problems: int
    kernels: int
    package_bytes: int
    changed: int
    libraries: tuple[tuple[str, int], ...]
    unbuilt: tuple[str, ...]


def embed(
    request: LibraryRequest, folder: Path, kinds: tuple[str, ...], layers: Layers, cache: ArtifactCache,
    listener: Listener | None = None, jobs: int | None = None, *, build: bool = True,
) -> ProjectReport:  # fmt: skip
    """Write the project of a library into a folder, and build it.

    A run that was interrupted is continued by the same call; one that changes nothing writes nothing.

    Args:
        request: What goes in.
        folder: Empty, absent, or of an earlier call.
        kinds: ``static``, ``shared`` or both.
        layers: Databases, which are only read.
        cache: Where GPU kernels are found, and go.
        listener: Called with each target and problem when it is done. None: no calls.
        jobs: Compilers at a time. None: one for each usable core.
        build: Whether make runs.

    Raises:
        ArgumentError: The name cannot begin names of C, or the version is no ``MAJOR.MINOR.PATCH``.
        FileFormatError: The folder holds other files, or cannot be written.
        NoSolutionError: No problem has a plan for one of the targets.
        CompileError: make failed; what was compiled stays.
    """
    if not _VERSION.fullmatch(request.version):
        raise ArgumentError(f"version {request.version!r} is not MAJOR.MINOR.PATCH, such as 1.0.0")
    library = make_library(request, layers, cache, listener, jobs)
    reference = request.selection is None or request.selection.reference
    files = project_files(library, ProjectOptions(kinds, reference))
    changed = write_project(folder, library.name, files)
    made = build_project(library, folder, jobs) if build else ()
    names = [f"{library.name}.{suffix}" for kind, suffix in (("static", "a"), ("shared", "so")) if kind in kinds]
    built = [each.libraries / name for each in made for name in names]
    problems = {packed.signature.canonical.key() for part in library.parts for packed in part.problems if packed.plans}
    kernels = {kernel.symbol for part in library.parts for kernel in part.kernels}
    binaries = [entry for part in library.parts for entry in part.package.of_kind(Kind.BINARY)]
    return ProjectReport(
        str(folder), library.name, tuple(part.target.name for part in library.parts), len(problems),
        len(kernels) + len(binaries), sum(len(e.stored) for part in library.parts for e in part.package.entries),
        changed, tuple((str(path), path.stat().st_size) for path in built),
        tuple(sorted({part.machine for part in library.parts} - {"", *(each.machine for each in made)})),
    )  # fmt: skip


def read_package(place: str, *, allow_unsigned: bool = False) -> KernelPackage:
    """The package at a path or URL, every byte of it checked.

    Args:
        place: A path, or a URL of http, https, file, s3 or gs.
        allow_unsigned: Whether a package from a URL may lack a signature.

    Raises:
        PackageError: It cannot be fetched or is damaged, its signature is wrong or of a key that is not trusted.
    """
    with scratch() as folder:
        found = install(place, folder, Rules(None, allow_unsigned=allow_unsigned))
        return PackageFile(found.path).load()


def cmake_folder() -> Path:
    """The folder of ``TilesmithEmbed.cmake``, whose function calls this from a CMake project."""
    return Path(__file__).parent / "cmake"
