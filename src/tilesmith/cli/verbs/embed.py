"""``tilesmith embed``: a C library with the kernels, plans and database rows of chosen problems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.packing import Wanted, wanted_problems
from tilesmith.cli.packing_options import jobs_option, plans_option
from tilesmith.cli.terminal import complain, note, print_json, print_wrapped, progress
from tilesmith.dispatch.locations import open_cache, open_databases
from tilesmith.errors import ArgumentError
from tilesmith.package.build import PackedProblem
from tilesmith.package.embed.folder import clean_project
from tilesmith.package.embed.gather import LibraryRequest
from tilesmith.package.embed.library import ProjectReport, cmake_folder, embed, read_package
from tilesmith.package.embed.project import SHARED, STATIC
from tilesmith.package.embed.targets import library_targets
from tilesmith.targets.target import Target


@click.command("embed", help="Write and build a C library with the kernels of chosen problems.")
@click.argument("lists", nargs=-1, metavar="LIST...")
@click.option(
    "--target", "targets", multiple=True, metavar="TARGETS",
    help="Such as 'sm_90a:132;x86_64-v4;aarch64:4': all go into one library (default: those of --package).",
)  # fmt: skip
@click.option("--name", help="Of the library: it begins each public name.")
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="The folder of the project.")
@click.option("--select", type=click.Path(path_type=Path), metavar="FILE", help="A selection, in TOML.")
@click.option(
    "--package", "packages", multiple=True, metavar="PATH|URL",
    help="Take its plans first, for its target; may be given again.",
)  # fmt: skip
@click.option("--allow-unsigned", is_flag=True, help="Take a package from a URL that nobody signed.")
@click.option("--no-db", is_flag=True, help="Leave out the rows of the databases.")
@click.option("--trials", is_flag=True, help="Embed the perf-db too.")
@plans_option
@click.option("--version", default="1.0.0", help="Of the library: MAJOR.MINOR.PATCH (default 1.0.0).")
@click.option("--static", "static", is_flag=True, help="make builds lib/NAME.a (the default).")
@click.option("--shared", "shared", is_flag=True, help="make builds lib/NAME.so; with --static: both.")
@click.option("--sources-only", is_flag=True, help="Write the project, and do not build it.")
@click.option("--clean", is_flag=True, help="Remove what earlier runs made in the folder, and nothing else.")
@click.option("--cmake-dir", is_flag=True, help="Print the folder of TilesmithEmbed.cmake, for CMAKE_MODULE_PATH.")
@jobs_option
@json_flag
def command(
    lists: tuple[str, ...], targets: tuple[str, ...], name: str | None, out: Path | None, select: Path | None,
    packages: tuple[str, ...], allow_unsigned: bool, no_db: bool, trials: bool, plans: int, version: str,
    static: bool, shared: bool, sources_only: bool, clean: bool, cmake_dir: bool, jobs: int | None, as_json: bool,
) -> int:  # fmt: skip
    if cmake_dir:
        click.echo(str(cmake_folder()))
        return 0
    if out is None:
        raise ArgumentError("no folder: say where the project goes, such as -o deconv")
    if clean:
        click.echo(f"{out}: {clean_project(out)} files removed")
        return 0
    if name is None:
        raise ArgumentError("no name: say what the library is called, such as --name deconv")
    if not (lists or select or packages):
        raise ArgumentError("say what goes in: a LIST, --select FILE or --package PATH")
    wanted = wanted_problems(lists, select) if lists or select else Wanted({}, None, 0)
    items = wanted.names
    read = tuple(read_package(place, allow_unsigned=allow_unsigned) for place in packages)
    request = LibraryRequest(
        name, version, tuple(items), library_targets(targets) if targets else (), read, plans, not no_db, trials,
        wanted.selection,
    )  # fmt: skip
    kinds = (STATIC,) * (static or not shared) + (SHARED,) * shared
    left_out = 0
    with progress(max(1, len(items) * len(request.targets)), "embed") as step:

        def tell(target: Target, packed: PackedProblem) -> None:
            nonlocal left_out
            what = items.get(packed.signature, packed.signature.canonical.key())
            if not packed.plans and not packed.refused:
                left_out += 1
                complain(f"{what}: {target.name}: {packed.reason}")
            step(f"{what}: {target.name}: {packed.choice.solver if packed.choice else packed.reason}")

        report = embed(
            request, out, kinds, open_databases(readonly=True), open_cache(), tell, jobs, build=not sources_only
        )
    _tell(report, as_json)
    return wanted.status or (1 if left_out else 0)


def _tell(report: ProjectReport, as_json: bool) -> None:
    if as_json:
        print_json(asdict(report))
        return
    what = f"{report.problems} problems for {', '.join(report.targets)}, {report.kernels} kernels"
    print_wrapped(f"{report.folder}: {what}, {report.changed} files written")
    for path, nbytes in report.libraries:
        click.echo(f"{path}: {nbytes} bytes")
    if report.libraries and report.unbuilt:
        note(f"no compiler here makes binaries for {', '.join(report.unbuilt)}: build the project there")
