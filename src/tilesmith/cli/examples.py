"""Examples of every verb and action, which their ``--help`` shows, and what FILE, COMMAND and KEY are."""

from __future__ import annotations

from typing import Any, Final

import click

_CONV: Final = "conv -n 1 -c 16 -H 28 -W 28 -k 32 -p 1 -q 1 -F 1"
_GEMM: Final = "gemm -m 64 -n 64 -k 64"

# By "VERB" or "VERB ACTION"; "" is the command line itself. Each line is a whole command, of at most 74 characters.
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": (
        "tilesmith doctor",
        "tilesmith tune problems.txt",
        "tilesmith bench problems.txt --against none",
        "tilesmith convbfp16 -n 1 -c 16 -H 28 -W 28 -k 32 -F 1 -t 1",
        "tilesmith help bench",
    ),
    "parse": ("tilesmith parse problems.txt", f"tilesmith parse {_CONV} --json"),
    "tune": (
        "tilesmith tune problems.txt",
        "tilesmith tune problems.txt --seconds 60 --device cuda",
        f"tilesmith tune {_GEMM} --csv",
    ),
    "retune": ("tilesmith retune --stale --list", "tilesmith retune --stale problems.txt"),
    "preload": (
        "tilesmith preload problems.txt --device cuda",
        "tilesmith preload problems.txt -d cpu -o cache",
        'tilesmith preload problems.txt --device "" --out sources',
    ),
    "gemm": ("tilesmith gemm run MNK=1024", "tilesmith gemm perf"),
    "gemm tune": ("tilesmith gemm tune MNK=512,1024 nn bf16 t=100",),
    "gemm run": ("tilesmith gemm run MNK=512:2048:512 nn nt --against none",),
    "gemm perf": ("tilesmith gemm perf", "tilesmith gemm perf MNK=512 --csv times.csv"),
    "gemm setup": ("tilesmith gemm setup tvm",),
    "gemm jobs": ("tilesmith gemm jobs",),
    "gemm log": ("tilesmith gemm log 1",),
    "gemm stop": ("tilesmith gemm stop 1",),
    "bench": (
        "tilesmith bench problems.txt",
        "tilesmith bench problems.txt --against onednn --json out.json --resume",
        "tilesmith bench problems.txt --device cuda --csv times.csv",
    ),
    "verify": ("tilesmith verify problems.txt", "tilesmith verify problems.txt --specials --dtype bf16"),
    "generate": (
        f"tilesmith generate {_GEMM}",
        "tilesmith generate problems.txt --target sm_90a:132:h200 --out sources",
    ),
    "explain": (f"tilesmith explain {_CONV}", f"tilesmith explain {_GEMM} --all"),
    "db": ("tilesmith db stats", "tilesmith db query problems.txt"),
    "db query": ("tilesmith db query", f"tilesmith db query {_GEMM} --trials", "tilesmith db query --csv"),
    "db export": ("tilesmith db export --out records.jsonl", "tilesmith db export problems.txt --format miopen"),
    "db import": ("tilesmith db import records.jsonl", "tilesmith db import gfx90a68.fdb.txt --target gfx90a:104"),
    "db merge": ("tilesmith db merge other.db --policy fastest",),
    "db push": ("tilesmith db push /mnt/team/tilesmith.db", "tilesmith db push s3://team/tilesmith.db"),
    "db pull": ("tilesmith db pull /mnt/team/tilesmith.db",),
    "db stats": ("tilesmith db stats",),
    "db prune": ("tilesmith db prune --stale --dry-run", "tilesmith db prune --older-than 90"),
    "db check": ("tilesmith db check", "tilesmith db check --repair"),
    "package": ("tilesmith package build problems.txt -o packages", "tilesmith package installed"),
    "package build": (
        "tilesmith package build problems.txt -o packages",
        "tilesmith package build problems.txt --target sm_90a:132:h200 -o packages",
    ),
    "package select": ("tilesmith package select small.toml problems.txt",),
    "package info": ("tilesmith package info packages/problems.kdb",),
    "package list": ("tilesmith package list packages/problems.kdb --kind plan",),
    "package verify": ("tilesmith package verify packages/problems.kdb --signed",),
    "package diff": ("tilesmith package diff old.kdb new.kdb",),
    "package merge": ("tilesmith package merge a.kdb b.kdb -o both.kdb",),
    "package remove": ("tilesmith package remove all.kdb problems.txt -o rest.kdb",),
    "package keygen": ("tilesmith package keygen team",),
    "package sign": ("tilesmith package sign packages/problems.kdb --key team",),
    "package trust": ("tilesmith package trust --list",),
    "package install": (
        "tilesmith package install packages/problems.kdb",
        "tilesmith package install --auto https://host.example/packages",
    ),
    "package installed": ("tilesmith package installed",),
    "package uninstall": ("tilesmith package uninstall problems",),
    "package index": ("tilesmith package index packages",),
    "package installer": ("tilesmith package installer -o installer",),
    "embed": ("tilesmith embed problems.txt --target x86_64-v4 --name deconv -o deconv",),
    "cache": ("tilesmith cache ls", "tilesmith cache prune --max-bytes 2G"),
    "cache ls": ("tilesmith cache ls",),
    "cache verify": ("tilesmith cache verify --repair",),
    "cache prune": ("tilesmith cache prune --older-than 30 --dry-run",),
    "cache clear": ("tilesmith cache clear --yes",),
    "report": (
        "tilesmith report",
        "tilesmith report tilesmith.db -o report.html",
        "tilesmith report --compare a.db b.db",
    ),
    "fleet": ("tilesmith fleet plan problems.txt --gpus 64",),
    "fleet plan": ("tilesmith fleet plan problems.txt --gpus 64 --seconds 30",),
    "doctor": ("tilesmith doctor", "tilesmith doctor --json"),
    "trace": ("tilesmith trace --out problems.txt train.py --batch 8",),
    "tune-model": ("tilesmith tune-model --seconds 600 serve.py --batch 8",),
    "solvers": ("tilesmith solvers", "tilesmith solvers c_dense", "tilesmith solvers --device cuda --csv"),
    "env": ("tilesmith env",),
    "help": ("tilesmith help tune", "tilesmith help db query"),
    "completion": ('eval "$(tilesmith completion bash)"', "tilesmith completion fish | source"),
}

# What the words of a usage line stand for; a verb explains those that its line has.
_WORDS: Final = {
    "FILE": "a list: a driver command or a key on each line, # begins a comment; - is stdin",
    "LIST": "a file with a driver command or a key on each line",
    "COMMAND": f"a driver command, with or without quotes, such as\n{_CONV}",
    "KEY": "a problem as databases name it (`tilesmith parse --json`), in quotes",
}
_PROBLEM_VERBS: Final = "FILE|COMMAND"


def with_examples(command: click.Command, path: str) -> click.Command:
    """The command, its ``--help`` and that of its actions with examples behind the options."""
    if getattr(command, "tells_examples", False):
        return command
    command.tells_examples = True  # type: ignore[attr-defined]
    shown = command.format_epilog

    def format_epilog(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown(ctx, formatter)
        _write_words(command, formatter)
        write_examples(formatter, path)

    command.format_epilog = format_epilog  # type: ignore[method-assign]
    for name, action in getattr(command, "commands", {}).items():
        with_examples(action, f"{path} {name}")
    return command


def write_examples(formatter: click.HelpFormatter, path: str) -> None:
    """The section of examples of a verb or action."""
    if path in EXAMPLES:
        with formatter.section("Examples"):
            for line in EXAMPLES[path]:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")


def _write_words(command: click.Command, formatter: click.HelpFormatter) -> None:
    used = "|".join(str(each.metavar or "") for each in command.params if isinstance(each, click.Argument))
    names = [name for name in _WORDS if name in used] if "COMMAND" in used or "LIST" in used else []
    if names:
        rows: list[tuple[str, Any]] = [(name, _WORDS[name]) for name in names]
        with formatter.section("Problems"):
            formatter.write_dl(rows)
