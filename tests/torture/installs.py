"""Installations that are killed, and whose files vanish while they run: the old package or the new one, never a half.

A process installs a package from a web server over an older one. At a random moment it is killed (SIGKILL), or a file
below its folder is removed: the installed package, what is staged or fetched, a lock. What lies there then is verified:

- half: a package that is damaged, or is neither the old nor the new one;
- lost: no package, though nobody has removed it;
- failed: an installation that was not disturbed, after one that was, does not end with the new package;
- left: files that such an installation does not remove.

    python tests/torture/installs.py [--times 100] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from package_samples import MANIFEST, package
from package_server import serving
from tilesmith.errors import PackageError
from tilesmith.package.form import encode
from tilesmith.package.install import Rules, install
from tilesmith.targets.names import parse_target

RULES = Rules((parse_target(MANIFEST.target),), allow_unsigned=True, downgrade=True)
PATIENCE_S = 30.0


def start(url: str, folder: Path) -> int:
    """A process that installs; its status is 0 if it could, 3 if a rule or a missing file refused it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            install(url, folder, RULES)
            status = 0
        except PackageError:
            status = 3
        finally:
            os._exit(status)
    return child


def ended(child: int) -> int:
    """The status of a process; one that goes on for too long is killed, and has none."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def torment(times: int, seed: int, home: Path) -> dict[str, object]:
    rng, folder = random.Random(seed), home / "installed"
    path = folder / MANIFEST.file_name
    contents = [encode(package(4, replace(MANIFEST, counter=counter), size=40_000)) for counter in (1, 2)]
    counts = dict.fromkeys(
        ("kills", "removals", "old", "new", "resumed", "none", "half", "lost", "blocked", "failed", "left"), 0
    )
    with serving() as site:
        site.files = {f"{number}.kdb": content for number, content in enumerate(contents)}
        site.drip_s = 0.001
        began = time.monotonic()
        install(site.url("0.kdb"), folder, RULES)
        usual_s = time.monotonic() - began
        now = 0
        for _ in range(times):
            folder.mkdir(exist_ok=True)
            path.write_bytes(contents[now])
            site.asked.clear()
            child = start(site.url(f"{1 - now}.kdb"), folder)
            time.sleep(rng.uniform(0.0, 1.3 * usual_s))
            removed = None
            if rng.random() < 0.5:
                counts["kills"] += 1
                os.kill(child, signal.SIGKILL)
            else:
                counts["removals"] += 1
                files = [each for each in folder.rglob("*") if each.is_file()]
                removed = rng.choice(files) if files else None
                if removed is not None:
                    removed.unlink(missing_ok=True)
            counts["blocked"] += ended(child) == -1
            found = path.read_bytes() if path.exists() else None
            if found is None:
                counts["none" if removed == path else "lost"] += 1
            elif found in contents:
                counts["old" if found == contents[now] else "new"] += 1
            else:
                counts["half"] += 1
            site.asked.clear()
            healed = ended(start(site.url(f"{1 - now}.kdb"), folder))
            counts["resumed"] += any(asked for _, asked in site.asked)
            now = 1 - now
            counts["failed"] += healed != 0 or path.read_bytes() != contents[now]
    time.sleep(1.2)  # what is younger may belong to somebody
    last = home / "last.kdb"
    last.write_bytes(contents[0])
    install(str(last), folder, RULES)
    counts["left"] = sum(each.is_file() and each != path for each in folder.rglob("*"))
    return {"times": times, "seed": seed, **counts}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--times", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilesmith-installs-") as home:
        found = torment(given.times, given.seed, Path(home))
    print(json.dumps(found))
    return int(any(found[name] for name in ("half", "lost", "blocked", "failed", "left")))


if __name__ == "__main__":
    sys.exit(main())
