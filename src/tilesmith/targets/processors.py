"""The texts that name processors in targets (``x86_64-v4:2:zen4``): by maker, family and model, never by free text.

The numbers are those of ``/proc/cpuinfo``: the families and models of AMD's and Intel's revision guides, the
implementers and parts of Arm's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.targets.cards import GENERIC

# (family, first model, last model): AMD gives each core design ranges of models.
_AMD = {
    (23, 0x00, 0x2F): "zen1", (23, 0x30, 0xFF): "zen2", (24, 0x00, 0xFF): "zen1",
    (25, 0x00, 0x0F): "zen3", (25, 0x10, 0x1F): "zen4", (25, 0x20, 0x5F): "zen3", (25, 0x60, 0xAF): "zen4",
    (26, 0x00, 0xFF): "zen5",
}  # fmt: skip
# Models of family 6.
_INTEL = {
    "haswell": (0x3C, 0x3F, 0x45, 0x46), "broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), "skylake-sp": (0x55,), "ice-lake": (0x7D, 0x7E),
    "ice-lake-sp": (0x6A, 0x6C), "tiger-lake": (0x8C, 0x8D), "rocket-lake": (0xA7,), "alder-lake": (0x97, 0x9A),
    "raptor-lake": (0xB7, 0xBA, 0xBF), "meteor-lake": (0xAA, 0xAC), "lunar-lake": (0xBD,),
    "arrow-lake": (0xB5, 0xC5, 0xC6), "sapphire-rapids": (0x8F,), "emerald-rapids": (0xCF,),
    "granite-rapids": (0xAD, 0xAE), "sierra-forest": (0xAF,), "gracemont": (0xBE,),
}  # fmt: skip
_ARM = {
    (0x41, 0xD03): "cortex-a53", (0x41, 0xD07): "cortex-a57", (0x41, 0xD08): "cortex-a72", (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD0C): "neoverse-n1", (0x41, 0xD40): "neoverse-v1", (0x41, 0xD42): "cortex-a78ae",
    (0x41, 0xD49): "neoverse-n2", (0x41, 0xD4F): "neoverse-v2", (0x41, 0xD84): "neoverse-v3",
    (0x41, 0xD8E): "neoverse-n3",
}  # fmt: skip
_MAKERS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "hygon", "CentaurHauls": "centaur"}


def processor_text(lines: Iterable[str]) -> str:
    """The processor of a machine whose ``/proc/cpuinfo`` has these lines; ``generic`` where they do not tell.

    One that has no name here is called by its numbers: ``intel-6-207``, ``arm-41-d80``.
    """
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    try:
        if "vendor_id" in fields:
            return _x86(fields["vendor_id"], int(fields["cpu family"]), int(fields["model"]))
        return _arm(int(fields["CPU implementer"], 16), int(fields["CPU part"], 16))
    except (KeyError, ValueError):
        return GENERIC


def _x86(vendor: str, family: int, model: int) -> str:
    maker = _MAKERS.get(vendor, "x86")
    if maker == "amd":
        names = (name for (of, first, last), name in _AMD.items() if of == family and first <= model <= last)
    else:
        names = (name for name, models in _INTEL.items() if maker == "intel" and family == 6 and model in models)
    return next(names, f"{maker}-{family}-{model}")


def _arm(implementer: int, part: int) -> str:
    return _ARM.get((implementer, part), f"arm-{implementer:x}-{part:x}")
