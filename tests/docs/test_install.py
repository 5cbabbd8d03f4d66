"""What messages and pages tell people to install exists under that name, for a checkout as for a wheel."""

import re
import tomllib

from pages import DOCS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [*PROJECT["dependencies"], *(name for extra in EXTRAS.values() for name in extra)]
# What pip finds on PyPI whenever it installs the project with its extras. The project itself is not there.
ON_PYPI = {re.split(r"[^A-Za-z0-9_-]", requirement)[0] for requirement in NEEDED}
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])
# Each `pip install`, its options, and the first thing that it installs.
INSTALL = re.compile(r"\bpip install((?: -[\w-]+)*)(?: '([^'\n]+)'| ([^\s`,;)\"']+))")


def installed(paths):
    """``(file, what)`` of each command."""
    for path in paths:
        for _, quoted, bare in INSTALL.findall(path.read_text()):
            yield path.name, quoted or bare


def test_messages_install_what_pypi_has():
    """A message meets people who have no checkout: neither the project's name nor a folder means anything there."""
    found = list(installed(SOURCES))
    assert {what for _, what in found} >= {"ziglang", "nvidia-cuda-nvrtc", "torch"}
    assert [each for each in found if each[1] not in ON_PYPI] == []


def test_pages_install_what_there_is():
    found = list(installed(PAGES))
    assert {what for _, what in found} >= {".", "ziglang", "nvidia-cuda-nvrtc"}
    for page, what in found:
        if what in ON_PYPI or what.endswith(".whl"):
            continue
        extra = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", what)
        assert extra is not None, f"{page}: pip install {what}"
        # Not ``cc``: what is built cannot bring the compiler that builds it.
        assert set(filter(None, (extra[1] or "").split(","))) <= set(EXTRAS) - {"cc"}, f"{page}: pip install {what}"


def test_no_text_names_an_extra_of_a_project_that_no_index_has():
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_install.py"]
    extra = re.compile(r"tilesmith\\?\[[a-z]+\\?\]")
    assert [path.name for path in (*SOURCES, *PAGES, *tests) if extra.search(path.read_text())] == []
