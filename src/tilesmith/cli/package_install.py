"""The actions of ``tilesmith package`` that install packages, list and remove installed ones, and write indexes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tilesmith.cli.options import Number, json_flag
from tilesmith.cli.terminal import complain, note, print_json, print_table, print_wrapped, transfer
from tilesmith.errors import ArgumentError, PackageError
from tilesmith.package.index import PackageIndex, index_of, write_index
from tilesmith.package.install import Installation, Rules, index_signer, install, install_picked, read_index
from tilesmith.package.installed import installed_packages, machine_targets, uninstall
from tilesmith.package.installer import write_installer
from tilesmith.package.picking import Pick, pick
from tilesmith.targets.detect import host_target
from tilesmith.targets.fitting import Fit, nearest_names
from tilesmith.targets.names import as_target
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.arriving import Patience
from tilesmith.toolchain.packages import install_folder

ANY = "any"

_folder = click.option(
    "-o", "--out", type=click.Path(file_okay=False, path_type=Path),
    help="The folder of installed packages (default: the first one of TILESMITH_PACKAGE_PATH).",
)  # fmt: skip


@click.command("install", help="Install packages from paths or URLs, or those of an index that suit this machine.")
@click.argument("places", nargs=-1, metavar="[PATH|URL]...")
@click.option("--auto", metavar="INDEX", help="The folder or URL of an index: take what suits this machine.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="With --auto, packages of this name alone.")
@click.option("--nearest", is_flag=True, help="Take the nearest if none is for exactly this machine; says so.")
@click.option(
    "--target", "targets", multiple=True, metavar="TARGET",
    help="In place of this machine, such as for a folder that other machines read; any: whatever it is for.",
)  # fmt: skip
@click.option("--allow-unsigned", is_flag=True, help="Take packages without a signature from URLs.")
@click.option("--downgrade", is_flag=True, help="Let an older version replace a newer one.")
@click.option("--replace", is_flag=True, help="Let another content replace that of the same version.")
@click.option(
    "--timeout", type=Number(1, 1e6), default=3600.0, metavar="SECONDS", help="For each download (default 3600)."
)
@_folder
@json_flag
def install_(
    places: tuple[str, ...], auto: str | None, names: tuple[str, ...], nearest: bool, targets: tuple[str, ...],
    allow_unsigned: bool, downgrade: bool, replace: bool, timeout: float, out: Path | None, as_json: bool,
) -> int:  # fmt: skip
    if bool(places) == (auto is not None):
        raise ArgumentError("say what to install: paths or URLs of packages, or --auto INDEX")
    if names and auto is None:
        raise ArgumentError("--name chooses packages of an index: give --auto INDEX, too")
    machines: tuple[Target, ...] | None = tuple(map(as_target, targets)) if ANY not in targets else None
    machines = machine_targets() if machines == () else machines
    folder = out or install_folder()
    rules = Rules(machines, nearest, allow_unsigned, downgrade, replace, Patience(total_s=timeout))
    if auto is None:
        for place in places:
            with transfer(place) as listener:
                done = install(place, folder, rules, listener)
            _tell(done, as_json)
        return 0
    found, index = read_index(auto, rules.patience)
    index_signer(found, index)
    status = 0
    for each in _picks(found, index, rules, names):
        try:
            with transfer(each.line.file) as listener:
                done = install_picked(found, each, folder, rules, listener)
        except PackageError as error:  # the next one may be installed
            complain(str(error))
            status = error.exit_status
        else:
            _tell(done, as_json, each.machine)
    return status


def _picks(place: str, index: PackageIndex, rules: Rules, names: tuple[str, ...]) -> tuple[Pick, ...]:
    """The packages of an index to install. Says which targets get nothing, and the nearest package for each of them."""
    if rules.machines is None:
        return tuple(Pick(line, line.target, Fit.EXACT) for line in index.lines if not names or line.name in names)
    picks = pick(index.lines, rules.machines, Fit.NEAREST if rules.nearest else Fit.EXACT, names)
    without = []
    for machine in rules.machines:
        if not any(each.machine == machine.name for each in picks):
            near = nearest_names(machine, (line.target for line in index.lines if not names or line.name in names))
            advice = f"the nearest is for {near[0]}, and `--nearest` takes it" if near else "no other one runs on it"
            without.append(f"no package is for {machine.name}; {advice}")
    if not picks:
        raise PackageError(f"{place}: {'; '.join(without)}")
    for line in without:
        note(line)
    return picks


def _tell(done: Installation, as_json: bool, machine: str = "") -> None:
    m = done.manifest
    if as_json:
        print_json({
            "file": str(done.path), "name": m.name, "target": m.target, "counter": m.counter,
            "signer": done.signer or "", "fit": done.fit.name.lower(), "action": done.action,
        })  # fmt: skip
        return
    signed = f"signed by {done.signer}" if done.signer else "not signed"
    nearest = f" (for {m.target}, the nearest{f' to {machine}' if machine else ''})" if done.fit != Fit.EXACT else ""
    print_wrapped(f"{done.path}: {done.action}, {m.name} {m.counter}, {signed}{nearest}")
    if nearest:
        note("calls use it where no package is for exactly their machine; their first one says so")


@click.command("installed", help="List installed packages, in the order in which calls look into them.")
@json_flag
def installed_(as_json: bool) -> int:
    found = installed_packages()
    for each in found:
        if as_json:
            print_json(asdict(each))
        elif each.problem:
            complain(each.problem)
    rows = [[x.name, x.target, x.counter, x.bytes, x.signer or "-", x.file] for x in found if not x.problem]
    if rows and not as_json:
        print_table(("name", "target", "counter", "bytes", "signer", "file"), rows, below=("signer", "file"))
    return 1 if any(each.problem for each in found) else 0


@click.command("uninstall", help="Remove installed packages by their name, or the name of one file.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--target", default="", metavar="TARGET", help="Of this target alone.")
@_folder
def uninstall_(names: tuple[str, ...], target: str, out: Path | None) -> int:
    for name in names:
        for path in uninstall(name, out or install_folder(), target):
            click.echo(f"{path}: removed")
    return 0


@click.command("index", help="Write the index of the packages in a folder, from which --auto chooses.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@json_flag
def index_(folder: Path, as_json: bool) -> int:
    index = index_of(folder)
    path = write_index(folder, index)
    for line in index.lines:
        if as_json:
            print_json({"index": str(path)} | asdict(line))
    if not as_json:
        print_wrapped(f"{path}: {len(index.lines)} packages, {'' if index.public_key else 'not '}signed")
    return 0


@click.command("installer", help="Write a shell script, and a program that it needs, for machines without Python.")
@click.option(
    "--target", "targets", multiple=True, metavar="TARGET",
    help="Of the machines, such as aarch64 (default: this machine); may be given again.",
)  # fmt: skip
@click.option(
    "-o", "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder of the files."
)
def installer_(targets: tuple[str, ...], out: Path) -> int:
    named = [as_target(each) for each in targets] or [host_target()]
    cpus = [target for target in named if isinstance(target, CpuTarget)]
    if len(cpus) < len(named):
        raise ArgumentError("--target names a GPU: the program runs on the CPU beside it; name that, such as x86_64-v2")
    for path in write_installer(out, cpus):
        click.echo(str(path))
    return 0


ACTIONS = (install_, installed_, uninstall_, index_, installer_)
