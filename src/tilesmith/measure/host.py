"""Facts about the machine, which each record has as evidence."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from tilesmith.targets.detect import cpu_model, usable_cores
from tilesmith.targets.detect_cuda import CudaDevice


@dataclass(frozen=True)
class HostFacts:
    """The machine and the moment. ``load`` is the load average over the last minute, -1 where there is none.

    ``gpu`` and ``driver`` (the CUDA version that it offers) are empty where no GPU is measured.
    """

    cpu: str
    cores: int
    system: str
    python: str
    compiler: str
    load: float
    date: str
    gpu: str = ""
    driver: str = ""

    @property
    def name(self) -> str:
        """The machine alone, without the moment: records of equal names may be compared."""
        if self.gpu:
            return f"{self.gpu}, driver {self.driver}"
        return f"{self.cpu} x{self.cores}, {self.system}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def moment() -> str:
    """This second in UTC, such as ``2026-01-31T12:00:00Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def host_facts(compiler: str = "", device: CudaDevice | None = None) -> HostFacts:
    """This machine, now. ``compiler`` is the identity of the compiler that made what is measured on ``device``."""
    try:
        load = round(os.getloadavg()[0], 2)
    except OSError:
        load = -1.0
    return HostFacts(
        cpu=cpu_model(), cores=usable_cores(), system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(), compiler=compiler, load=load,
        date=moment(), gpu=device.name if device else "",
        driver=device.driver if device else "",
    )  # fmt: skip
