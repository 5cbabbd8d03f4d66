"""Every command of every page: its verb, options and problems exist, and what it names of the checkout is there.

The pages' own tests run the commands whose output stands there. Here none is left that could not be typed.
"""

import re
import shlex
from importlib import import_module

import click
import pytest
from pages import DOCS, ROOT

from tilesmith.cli.main import VERBS
from tilesmith.problems.driver import parse_command, parse_problem

PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
MAKE = (ROOT / "Makefile").read_text()


def typed(text):
    """The commands of a page's console and shell blocks, without the variables before them."""
    for language, block in re.findall(r"^```(console|sh)\b[^\n]*\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            for part in re.split(r" \| | && |; ", line.removeprefix("$ ")):
                try:
                    words = shlex.split(part, comments=True)
                except ValueError:  # a quoted script over several lines
                    continue
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                cut = next((i for i, word in enumerate(words) if re.match(r"\d?>", word)), len(words))
                if words[:cut]:
                    yield words[:cut]


def check_tilesmith(words):
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        if not verb.startswith("-"):
            given = [word for word in rest if word not in ("--json",)]
            for own in ("--device", "--seconds"):
                while own in given:
                    del given[given.index(own) : given.index(own) + 2]
            parse_command(shlex.join([verb, *given]))
        return
    command = import_module(f"tilesmith.cli.verbs.{verb.replace('-', '_')}").command
    if isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    try:
        context = command.make_context(verb, list(rest))
    except click.exceptions.Exit:
        return  # --help
    except click.BadParameter as error:
        if "does not exist" not in error.message:  # the file of a reader
            raise
        return
    problem = [word for word in context.params.get("words") or () if isinstance(word, str)]
    if len(problem) > 1 and verb in ("tune", "bench", "verify", "explain", "parse", "preload", "generate"):
        assert not problem[0].endswith(".txt"), f"{words}: {problem[1]} is no option"
        if problem[0] not in ("...", "COMMAND"):
            parse_problem(shlex.join(problem))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page(page):
    for words in typed(page.read_text().partition("\n## Bad input\n")[0]):
        if words[0].endswith("tilesmith") and len(words) > 1:
            check_tilesmith(words[1:])
        elif words[0] == "make" and "-C" not in words:
            for target in (word for word in words[1:] if not re.search(r"=|^-", word)):
                assert re.search(rf"^{re.escape(target)}:", MAKE, re.M), words
        elif words[0].startswith("python") and len(words) > 1 and re.match(r"(benchmarks|tests|release)/", words[1]):
            assert (ROOT / words[1]).is_file(), words


def test_there_are_many():
    found = [words for page in PAGES for words in typed(page.read_text()) if words[0].endswith("tilesmith")]
    assert len(found) >= 100
