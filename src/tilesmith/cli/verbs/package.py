"""``tilesmith package``: build kernel packages, look at them, compare and change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tilesmith.cli import package_install
from tilesmith.cli.options import Actions, json_flag
from tilesmith.cli.package_keys import key_option, keygen, passphrase_option, sign, signing_key, trust
from tilesmith.cli.package_select import select
from tilesmith.cli.packing_options import default_name, jobs_option, plans_option, target_option
from tilesmith.cli.problem_list import problem_keys
from tilesmith.cli.terminal import complain, note, print_json, print_table, print_wrapped
from tilesmith.db.exchange import NEWEST, POLICIES
from tilesmith.dispatch.locations import open_cache, open_databases, target_of
from tilesmith.errors import ArgumentError, FileFormatError, PackageError
from tilesmith.package.change import diff, merge, remove
from tilesmith.package.describe import describe, summary, withdrawn_plans
from tilesmith.package.files import PackageFile, write
from tilesmith.package.records import KernelPackage, Kind
from tilesmith.package.signing import sign_file
from tilesmith.package.trust import Signer, examine

_U64_MOST = 2**64 - 1


@click.group("package", cls=Actions, help="Build kernel packages, look at them, compare and change them.")
def command() -> None:
    pass


_file = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
_files = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
_out = click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The package to write.")


@command.command("build", help="Make a package of each target from the local databases, the cache and the compilers.")
@click.argument("lists", nargs=-1, metavar="[LIST]...")
@target_option
@click.option(
    "--select", "selected", type=click.Path(path_type=Path), metavar="FILE",
    help="A selection of problems and kernels in TOML; a LIST adds problems.",
)  # fmt: skip
@click.option(
    "-o", "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder of the packages."
)
@click.option("--name", help="Of the packages (default: the names of the lists).")
@click.option("--counter", type=click.IntRange(0, _U64_MOST), default=0, help="Of this release; grows with each one.")
@click.option("--date", type=click.IntRange(0, _U64_MOST), default=0, help="Seconds since 1970 (default 0: not said).")
@click.option(
    "--rows", multiple=True, metavar="TARGET",
    help="Whose find-db is embedded (default: the target's); may be given again.",
)  # fmt: skip
@plans_option
@click.option("--trials", is_flag=True, help="Embed the perf-db too.")
@key_option("--sign", "Sign each package with this private key: its file, or its name.")
@passphrase_option
@click.option("--ptx", is_flag=True, help="For each GPU, a second package of PTX for later GPUs that no record knows.")
@jobs_option
@json_flag
def build(
    lists: tuple[str, ...], targets: tuple[str, ...], selected: Path | None, out: Path, name: str | None, counter: int,
    date: int, rows: tuple[str, ...], plans: int, trials: bool, key: str | None, passphrase: Path | None, ptx: bool,
    jobs: int | None, as_json: bool,
) -> int:  # fmt: skip
    from tilesmith.cli.packing import packed_for, tell_unused, wanted_problems
    from tilesmith.package.build import Rows, build_target, with_ptx

    signer = signing_key(key, passphrase) if key else None
    wanted = wanted_problems(lists, selected)
    status, every = wanted.status, []
    named = name or default_name(lists or (selected or "",))
    layers, cache = open_databases(readonly=True), open_cache()
    asked = tuple(map(build_target, targets)) if targets else (target_of(None, None),)
    for target in with_ptx(asked) if ptx else asked:
        packed = packed_for(wanted, named, target, layers, cache, Rows(rows, trials), jobs, plans, counter, date)
        every.append(packed)
        _make_folder(out)
        path = out / packed.package.manifest.file_name
        nbytes = write(path, packed.package)
        if signer is not None:
            sign_file(path, signer)
        if as_json:
            print_json(asdict(summary(PackageFile(path), nbytes)) | {"left_out": packed.left_out})
        else:
            problems = sum(bool(each.plans) for each in packed.problems)
            print_wrapped(f"{path}: {problems} problems, {_contents(packed.package)}, {nbytes} bytes")
        status = status or packed.status
    tell_unused(every)
    return status


command.add_command(select)


@command.command("info", help="Print what a package is: its manifest and what it counts.")
@_files
@json_flag
def info(files: tuple[Path, ...], as_json: bool) -> int:
    for path in files:
        found = asdict(summary(PackageFile(path), path.stat().st_size))
        if as_json:
            print_json(found)
        else:
            shown = ((name, " ".join(value) if isinstance(value, tuple) else value) for name, value in found.items())
            for name, value in shown:
                print_wrapped("-" if value == "" else str(value), f"{name:10} ", " " * 11)
            if path != files[-1]:
                click.echo()
    return 0


@command.command("list", help="List the entries of a package.")
@_files
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([kind.name.lower() for kind in Kind]), help="These only."
)
@json_flag
def list_(files: tuple[Path, ...], kinds: tuple[str, ...], as_json: bool) -> int:
    for path in files:
        rows = []
        for entry in PackageFile(path).entries():
            if kinds and entry.kind.name.lower() not in kinds:
                continue
            found = describe(entry)
            if as_json:
                print_json({"file": str(path)} | asdict(found))
            what = f"{found.rows} rows" if found.rows else found.config
            rows.append(
                [found.kind, found.bytes, found.stored, found.time_us, found.target or "-", found.solver or "-", what,
                 found.problem or found.digest]
            )  # fmt: skip
        if rows and not as_json:
            headers = ("kind", "bytes", "stored", "time_us", "target", "solver", "what", "problem")
            print_table(headers, rows, below=("problem", "what"))
    return 0


@command.command("verify", help="Read every byte of packages; name what is damaged, and who signed them.")
@_files
@click.option("--signed", "must_be_signed", is_flag=True, help="Exit status 1 unless a trusted key signed each.")
@json_flag
def verify(files: tuple[Path, ...], must_be_signed: bool, as_json: bool) -> int:
    bad = 0
    for path in files:
        damage, entries, withdrawn, signer = "", 0, 0, Signer("", "", "not verified")
        try:
            package = PackageFile(path)
            package.verify()
            entries, withdrawn, signer = len(package), withdrawn_plans(package), examine(package)
            if signer.is_wrong:
                damage = f"{path}: it is {signer.problem}"
        except PackageError as error:
            damage = str(error)
        bad += bool(damage) or (must_be_signed and bool(signer.problem))
        if as_json:
            print_json(
                {"file": str(path), "entries": entries, "signed": bool(signer.fingerprint), "signer": signer.name,
                 "trust": signer.problem or "trusted", "damage": damage, "withdrawn": withdrawn}
            )  # fmt: skip
        elif damage:
            complain(damage)
        else:
            print_wrapped(f"{path}: {entries} entries, whole, {signer.text}")
            if withdrawn:
                told = "compute wrong numbers and are not used; build the package anew"
                complain(f"{path}: {withdrawn} of its plans {told}")
    return 1 if bad else 0


@command.command("diff", help="Say what two packages do not share; exit status 1 if there is anything.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@json_flag
def diff_(first: Path, second: Path, as_json: bool) -> int:
    found = diff(PackageFile(first).load(), PackageFile(second).load())
    for each in found:
        if as_json:
            print_json(asdict(each))
    if found and not as_json:
        rows = [[each.what, each.kind, each.rank, each.name.replace("\n", " ")] for each in found]
        print_table(("what", "kind", "rank", "name"), rows, below=("name",))
    return 1 if found else 0


@command.command("merge", help="Write one package with all that several of the same target have.")
@_files
@_out
@click.option("--policy", type=click.Choice(list(POLICIES)), default=NEWEST, help="Which of two rows of one key stays.")
def merge_(files: tuple[Path, ...], out: Path, policy: str) -> int:
    packages = [PackageFile(path) for path in files]
    return _written(out, merge([package.load() for package in packages], policy), packages)


@command.command(
    "remove", help="Write a package without some problems.", context_settings={"ignore_unknown_options": True}
)
@_file
@click.argument("words", nargs=-1, metavar="[LIST|COMMAND|KEY]", type=click.UNPROCESSED)
@_out
@click.option("--target", default="", help="Of this target alone.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(["plan", "find", "perf"]), help="Of these kinds alone."
)
def remove_(file: Path, words: tuple[str, ...], out: Path, target: str, kinds: tuple[str, ...]) -> int:
    keys = problem_keys(words)
    if keys is None and not target and not kinds:
        raise ArgumentError("say what goes: problems, --target or --kind")
    source = PackageFile(file)
    package = source.load()
    left = remove(
        package,
        lambda entry: (keys is None or entry.problem in keys)
        and target in ("", entry.target)
        and (not kinds or entry.kind.name.lower() in kinds),
    )
    if left == package:
        complain(f"{file} has no such entry")
        return 1
    return _written(out, left, [source])


def _written(path: Path, package: KernelPackage, sources: Sequence[PackageFile]) -> int:
    nbytes = write(path, package)
    signed = next((f": the signature of {each.path} was for its own bytes" for each in sources if each.signature), "")
    note(f"a changed package is not signed{signed}")
    print_wrapped(f"{path}: {_contents(package)}, {nbytes} bytes")
    return 0


def _contents(package: KernelPackage) -> str:
    plans, binaries = package.of_kind(Kind.PLAN), package.of_kind(Kind.BINARY)
    return f"{len(plans)} plans, {len(binaries)} binaries"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be made: {error.strerror or error}") from None


for _action in (keygen, sign, trust, *package_install.ACTIONS):
    command.add_command(_action)
