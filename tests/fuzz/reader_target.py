"""One reader of ``readers.py`` under atheris, which watches what of this package each input reaches.

    python tests/fuzz/reader_target.py NAME FOLDER [libFuzzer's options]

``FOLDER`` is for the files that the reader is given.
"""

from __future__ import annotations

import gc
import shlex
import sys
from pathlib import Path
from types import FunctionType

import atheris
from readers import readers, refusal_of

# What compares seals is not watched: atheris shows both sides of a comparison to the mutator, which then forges them.
SEALS = ("unseal", "unbind", "_sound")


def is_watched(module: str, name: str) -> bool:
    """Kernel families read no input, and are half of all that would be watched."""
    families = ("tilesmith.solvers.c.", "tilesmith.solvers.cuda.", "tilesmith.solvers.external.")
    return module.startswith("tilesmith.") and not module.startswith(families) and name not in SEALS


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    (reader,) = [each for each in readers() if each.name == name]

    # NOTE: not atheris.instrument_imports: the finder of an editable install wraps its loaders, which atheris 3.0.0
    # takes for custom ones and then watches nothing ("no interesting inputs were found").
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and is_watched(found.__module__ or "", found.__name__):
            atheris.instrument_func(found)

    def one(data: bytes) -> None:
        refusal = refusal_of(reader, data, folder)
        if refusal:
            raise AssertionError(refusal)

    # The command by which libFuzzer starts this process again, for ``-merge``.
    again = shlex.join([sys.executable, *sys.argv[:3]])
    atheris.Setup([again, *sys.argv[3:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
