"""The evidence that a record carries of where it was measured."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from tilesmith.targets.detect import cpu_model, usable_cores


@dataclass(frozen=True)
class HostFacts:
    """The machine and the moment. ``load`` is the load average over the last minute, -1 where there is none."""

    cpu: str
    cores: int
    system: str
    python: str
    compiler: str
    load: float
    date: str

    @property
    def name(self) -> str:
        """The machine alone, without the moment: records of equal names may be compared."""
        return f"{self.cpu} x{self.cores}, {self.system}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def host_facts(compiler: str = "") -> HostFacts:
    """This machine, now. ``compiler`` is the identity of the compiler that made what is measured."""
    try:
        load = round(os.getloadavg()[0], 2)
    except OSError:
        load = -1.0
    return HostFacts(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        compiler=compiler,
        load=load,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
