"""The commands of the page on building for other machines run, on files of the names that it gives."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS

from tilesmith.package.files import PackageFile
from tilesmith.package.records import Kind

PAGE = DOCS / "guide" / "cross-building.md"
ELF_AARCH64 = (2, 183)  # class and machine


@pytest.mark.needs_zig
@pytest.mark.needs_nvrtc
def test_its_commands(tmp_path):
    text = PAGE.read_text()
    ((name, content),) = re.findall(r'^```text title="([^"]+)"\n(.*?)^```', text, re.M | re.S)
    (tmp_path / name).write_text(content)
    commands = re.findall(r"^ *\$ (.*)$", text, re.M)
    assert len(commands) == 4
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", "\n".join(commands)], env=os.environ | {"PATH": path, "TMPDIR": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    binary = (tmp_path / "runtime" / "ts-query").read_bytes()
    assert (binary[4], int.from_bytes(binary[18:20], "little")) == ELF_AARCH64
    for target in re.findall(r"--target (\S+)", commands[0]):
        package = PackageFile(tmp_path / "packages" / f"board-{target.replace(':', '-')}.kdb")
        assert package.manifest.target == target
        assert sum(entry.kind == Kind.PLAN for entry in package.entries()) == len(content.splitlines())
