"""Hostile packages against a machine that trusts one maker: how many of each kind are accepted, and how many crash.

Each package is opened, its signer asked, and every byte verified, as before an installation; some are installed from a
web server. A kind runs in a process of its own: one that ends counts as a crash, and so does any error that is not the
one that Tilesmith raises for packages.

    python tests/torture/packages.py [--every 1]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from homes import in_child, place

from hostile_packages import MAKER, MANIFEST, OTHER, attacks, sample, signed
from package_server import serving
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile
from tilesmith.package.form import with_signature
from tilesmith.package.index import INDEX_FILE, index_of
from tilesmith.package.install import Rules, install, install_picked, read_index
from tilesmith.package.keys import PublicKey, forget, hold
from tilesmith.package.picking import Pick
from tilesmith.package.trust import signer_of
from tilesmith.targets.fitting import Fit
from tilesmith.targets.names import parse_target

MOST_GROWTH_KB = 160 << 10  # of a process that reads any of them: an entry has at most 64 MiB
RULES = Rules((parse_target(MANIFEST.target),))


def is_accepted(data: bytes) -> bool:
    package = PackageFile(data)
    if signer_of(package) != "maker":
        return False
    package.verify()
    return True


def counts(tries: Iterable[Callable[[], bool]]) -> dict[str, Any]:
    """What came of each: accepted, refused in Tilesmith's words, or something else, which is a crash."""
    tried = accepted = 0
    wrong: list[str] = []
    for attempt in tries:
        tried += 1
        try:
            accepted += attempt()
        except PackageError as error:
            if len(str(error).splitlines()) != 1:
                wrong.append(f"{error!r}")
        except Exception:
            wrong.append(traceback.format_exc()[-600:])
    return {"tried": tried, "accepted": accepted, "crashed": len(wrong), "wrong": wrong[:3]}


def read(packages: Iterable[bytes]) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = counts((lambda data=data: is_accepted(data)) for data in packages)  # type: ignore[misc]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > MOST_GROWTH_KB:
        found["wrong"].append(f"memory grew by {grown} KiB")
        found["crashed"] += 1
    return found


def installed(folder: Path) -> dict[str, Any]:
    """From a web server: what a rule of installing refuses. What is installed stays as it was."""
    old, new, later = sample(1, counter=3), sample(2, counter=4), sample(5, counter=5)
    path = folder / MANIFEST.file_name
    with serving() as site:
        site.files = {
            "new.kdb": new, "old.kdb": old, f"{path.name}": old, "latest.kdb": old, "same.kdb": sample(3, counter=4),
            "other.kdb": signed(later, OTHER), "unsigned.kdb": with_signature(later, bytes(32), bytes(64)),
            "elsewhere.kdb": sample(5, counter=9, target="sm_90a:132:h200"), "cut.kdb": later[:-1],
        }  # fmt: skip
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            os.environ.pop(name, None)
        if install(site.url("new.kdb"), folder, RULES).signer != "maker":
            raise RuntimeError("the package of the maker was not installed")

        def refused(name: str, rules: Rules = RULES) -> bool:
            try:
                install(site.url(name), folder, rules)
                return True
            finally:
                if path.read_bytes() != new or [each.name for each in folder.glob("*.kdb")] != [path.name]:
                    raise RuntimeError(f"{name} changed what was installed")

        def refused_from_index() -> bool:
            """The index, which the maker signed, names one package; the server has an older one of the maker there."""
            with tempfile.TemporaryDirectory() as shelf:
                (Path(shelf) / "p.kdb").write_bytes(later)
                site.files |= {INDEX_FILE: index_of(Path(shelf)).text.encode(), "p.kdb": old}
            where, index = read_index(site.url(INDEX_FILE))
            pick = Pick(index.lines[0], MANIFEST.target, Fit.EXACT)
            install_picked(where, pick, folder, replace(RULES, downgrade=True))
            return True

        def refused_when_revoked() -> bool:
            site.files["later.kdb"] = later
            hold(PublicKey("maker", MAKER.public_key().public_bytes_raw()), is_revoked=True)
            return refused("later.kdb")

        def refused_when_forgotten() -> bool:
            forget("maker")
            return refused("later.kdb")

        names = [name for name in site.files if name != "new.kdb"]
        tries: list[Callable[[], bool]] = [lambda name=name: refused(name) for name in names]  # type: ignore[misc]
        return counts([*tries, refused_from_index, refused_when_revoked, refused_when_forgotten])


def torment(every: int, home: Path) -> dict[str, Any]:
    hold(PublicKey("maker", MAKER.public_key().public_bytes_raw()))
    if not is_accepted(sample()):
        raise RuntimeError("the package of the maker is refused")
    found: dict[str, Any] = {}

    def run(name: str, work: Callable[[], dict[str, Any]]) -> None:
        ended = in_child(work)
        found[name] = ended.value or {"tried": 0, "accepted": 0, "crashed": 1, "wrong": [ended.error]}

    for name, packages in attacks(every).items():
        run(name, lambda packages=packages: read(packages))  # type: ignore[misc]
    run("installed: rolled back, renamed, unsigned, wrong or revoked key", lambda: installed(home / "packages"))
    return found


def table(found: dict[str, Any]) -> Iterator[str]:
    width = max(map(len, found))
    yield f"{'packages':{width}}  {'tried':>6}  {'accepted':>8}  {'crashed':>7}"
    for name, each in found.items():
        yield f"{name:{width}}  {each['tried']:>6}  {each['accepted']:>8}  {each['crashed']:>7}"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=int, default=1, help="of the bytes and lengths")
    given = options.parse_args()
    begun = time.monotonic()
    logging.getLogger("tilesmith").propagate = False
    with tempfile.TemporaryDirectory(prefix="tilesmith-hostile-") as folder:
        place(Path(folder))
        os.environ["XDG_CONFIG_HOME"] = str(Path(folder) / "config")
        found = torment(given.every, Path(folder))
    print("\n".join(table(found)))
    print(json.dumps(found | {"took_s": round(time.monotonic() - begun, 1)}))
    return int(any(each["accepted"] or each["crashed"] or not each["tried"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
