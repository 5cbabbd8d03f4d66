"""Parcels that wait on a worker's machine until the client has kept them: neither a lost worker nor a lost client
loses what was found.

One file for each parcel, in a folder for each run. Every worker of a machine delivers what lies there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

from tilesmith import env
from tilesmith.errors import FleetError
from tilesmith.fleet.tasks import Parcel, encode, read_parcel
from tilesmith.toolchain import files

MOST_BYTES = 64 << 20  # of a parcel
MOST_TOGETHER = 32 << 20  # of those that go with one reply
_NAME = re.compile(r"[0-9a-f]{1,64}")
_log = logging.getLogger("tilesmith.fleet")


def own_folder() -> Path:
    """Where this machine's workers keep databases and parcels; machines may share TILESMITH_FLEET_DIR."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:80].lstrip(".") or "machine"
    return env.FLEET_DIR.get() / name


class Outbox:
    """The parcels of one run on this machine."""

    def __init__(self, run: str) -> None:
        if not _NAME.fullmatch(run):
            raise FleetError(f"{run!r} is no name of a run")
        self._root = own_folder()
        self._folder = self._root / "outbox" / run

    def put(self, parcel: Parcel) -> Parcel:
        """Keep a parcel, durably, under a new name, which it then has."""
        parcel = replace(parcel, name=os.urandom(16).hex())
        files.publish(self._root, self._folder / parcel.name, encode(parcel))
        return parcel

    def waiting(self, age_s: float = 0.0) -> tuple[Parcel, ...]:
        """The parcels of this age or older, the oldest first, as many as one reply carries."""
        found: list[Parcel] = []
        total = 0
        for path in self._paths(age_s):
            try:
                data = files.read(str(path), MOST_BYTES, own=True)
                parcel = read_parcel(data)
            except (OSError, FleetError) as error:
                if not isinstance(error, FileNotFoundError):  # another worker's client has it
                    _log.warning("%s: left out: %s", path, error)
                    self.forget([path.name])
                continue
            total += len(data)
            if found and total > MOST_TOGETHER:
                break
            found.append(replace(parcel, name=path.name))
        return tuple(found)

    def forget(self, names: list[str] | tuple[str, ...]) -> None:
        """Remove parcels that the client has kept."""
        for name in names:
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # unless it holds others

    def _paths(self, age_s: float) -> list[Path]:
        moments, latest = [], time.time_ns() - int(age_s * 1e9)
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    moments.append((entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)))
        return [path for moment, path in sorted(moments) if moment <= latest or age_s <= 0]
