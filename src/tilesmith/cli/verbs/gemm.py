"""``tilesmith gemm tune|run|perf|jobs|log|stop``: the laboratory of matrix products."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tilesmith.cli.options import Actions, Number, device_option, json_flag, threads_option
from tilesmith.cli.terminal import complain, dump_json, note, output_width, paced, print_json, print_table, progress
from tilesmith.compare.rival import absent_rivals, chosen_rivals
from tilesmith.compare.tvm.environment import set_up
from tilesmith.dispatch.locations import target_of
from tilesmith.errors import ArgumentError, CommandError, FileFormatError
from tilesmith.lab.foreign import tune_by_tvm
from tilesmith.lab.jobs import RUNNING, Job, begin_job, job_of, jobs, log_of, stop_job
from tilesmith.lab.results import Result, newest, read_results
from tilesmith.lab.session import SECONDS, Place, Session, place_of
from tilesmith.lab.tables import csv_text, json_rows, line, plot, text_table
from tilesmith.lab.words import FOREGROUND, Asked, read_line, read_words, said
from tilesmith.problems.gemm import GemmSignature
from tilesmith.reading import read_named

_MOST_WORDS = 1 << 20  # bytes of a list
_WORDS = """WORDS: MNK=1024, M=968 N=1376 K=2616, lists MNK=512,1024, ranges MNK=1024:4096:1024 (the last included), B=8
(batch); nn nt tn tt; fp32 tf32 bf16 fp16 fp64 int8 ...; bias residual relu silu gelu ...; t=TRIALS; s=SECONDS;
O=OPTION (odd: TVM's kernels; below 65536: a job in the background)."""
_CONVOLVES = "cudnn"  # has no products: a rival here only where it is named
_against = click.option("--against", multiple=True, help="Rivals, with commas; none for none (default: those here).")
_words = click.argument("words", nargs=-1, metavar="[FILE] WORDS...")


@click.group("gemm", cls=Actions, help=f"Tune and measure matrix products beside rivals. {_WORDS}")
def command() -> None:
    pass


@command.command("tune", help=f"Search the best config of each product, and time it. {_WORDS}")
@_words
@click.option("--again", is_flag=True, help="Those, too, that have a result.")
@device_option
@threads_option
@json_flag
def tune_(words: tuple[str, ...], again: bool, device: str, threads: int | None, as_json: bool) -> int:
    return _work("tune", words, ("none",), again, device, threads, as_json)


@command.command("run", help=f"Tune each product, and time it beside the rivals. {_WORDS}")
@_words
@_against
@click.option("--again", is_flag=True, help="Those, too, that have a result.")
@device_option
@threads_option
@json_flag
def run_(
    words: tuple[str, ...], against: tuple[str, ...], again: bool, device: str, threads: int | None, as_json: bool
) -> int:
    return _work("run", words, against, again, device, threads, as_json)


def _work(
    action: str, words: Sequence[str], against: Sequence[str], again: bool, device: str, threads: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    asked = _asked(words)
    if not any(each.problems for each in asked):
        raise CommandError("no size is given; type for example MNK=1024")
    if any(each.in_background for each in asked):
        return _begin(action, words, asked, against, again, device, threads)
    failed = 0
    rivals = chosen_rivals(against, target_of(None, threads, device), tried=True)
    place = place_of(device, threads, [each for each in rivals if against or each.name != _CONVOLVES])
    for each in asked:
        if each.is_of_tvm:
            failed += _tune_by_tvm(each, place, as_json and action == "tune")
            if action == "tune":
                continue
        session = Session(place, each.trials, each.seconds or SECONDS, paced())
        failed += _run(session, each, again or each.is_of_tvm, as_json)
    return 1 if failed else 0


def _tune_by_tvm(asked: Asked, place: Place, as_json: bool) -> int:
    """Returns how many products failed."""
    failed = 0
    for found in tune_by_tvm(asked.problems, place.target, asked.trials, asked.seconds, paced()):
        failed += bool(found.reason)
        complain(found.line) if found.reason else note(found.line)
        if as_json:
            print_json({"words": said(found.problem), "trials": found.trials, "time_us": found.time_us})
    return failed


def _run(session: Session, asked: Asked, again: bool, as_json: bool) -> int:
    left = list(asked.problems) if again else session.left(asked.problems)
    if len(left) < len(asked.problems):
        note(
            f"{len(asked.problems) - len(left)} of {len(asked.problems)} products have a result (--again repeats them)"
        )
    with progress(len(left), "gemm") as step:

        def tell(problem: GemmSignature, found: Result | str) -> None:
            if isinstance(found, str):
                complain(f"{said(problem)}: {found}")
                return
            step(line(found))
            if as_json:
                print_json(json_rows([found])[0])

        return session.run(left, tell, lambda problem: step.search(said(problem), session.seconds))


def _begin(
    action: str, words: Sequence[str], asked: Sequence[Asked], against: Sequence[str], again: bool, device: str,
    threads: int | None,
) -> int:  # fmt: skip
    if len({each.option for each in asked}) > 1 or not any(word.startswith("O=") for word in words):
        raise CommandError("a list runs in the background as a whole: leave O out of its lines, and type it behind")
    kept = [f"O={FOREGROUND + asked[0].is_of_tvm}" if word.startswith("O=") else word for word in words]
    options = ["--device", device, *(["--threads", str(threads)] if threads else []), *(["--again"] if again else [])]
    if action == "run":
        options += [part for name in against for part in ("--against", name)]
    typed = [action, *kept, *options]
    job = begin_job(typed, [sys.executable, "-m", "tilesmith", "gemm", *typed])
    click.echo(f"job {job.number} (process {job.process}): tilesmith gemm {' '.join(typed)}")
    note(f"tilesmith gemm log {job.number} shows what it prints, tilesmith gemm stop {job.number} ends it")
    return 0


@command.command("perf", help=f"Print all results, side by side. {_WORDS} Words choose products; none: all.")
@_words
@click.option("--csv", "csv_path", type=click.Path(path_type=Path), help="Write them to this file, too.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw TFLOP/s by size (.svg, .png, .pdf).")
@click.option("--json", "json_path", help="Write them to this file, too (-: stdout, instead of the table).")
@click.option("--target", "target_name", default="", help="Of this target (default: that of --device).")
@device_option
@threads_option
def perf_(
    words: tuple[str, ...], csv_path: Path | None, plot_path: Path | None, json_path: str | None, target_name: str,
    device: str, threads: int | None,
) -> int:  # fmt: skip
    wanted = {problem.canonical.key() for each in _asked(words) for problem in each.problems}
    known, name = read_results(), target_name or target_of(None, threads, device).name
    found = [each for key, each in newest(known, name).items() if not wanted or key in wanted]
    if not found:
        others = sorted({each.target for each in known} - {name})
        told = f"; there are results of {', '.join(others)} (--target)" if others else ""
        complain(f"no result of {name} is known{told}; tilesmith gemm run WORDS makes one")
        return 1
    if json_path == "-":
        click.echo(dump_json(json_rows(found)), nl=False)
    else:
        click.echo(text_table(found, output_width()))
        for rival, reason in absent_rivals(target_of(None, threads, device)).items():
            if rival != _CONVOLVES:
                note(f"{rival}: {reason}")
    if json_path not in (None, "-"):
        _write(Path(str(json_path)), dump_json(json_rows(found)))
    if csv_path is not None:
        _write(csv_path, csv_text(found))
    if plot_path is not None:
        plot(found, plot_path)
    return 0


@command.command("setup", help="Make what a rival needs: tvm, a virtual environment of its own.")
@click.argument("rival", type=click.Choice(["tvm"]))
@click.option("--seconds", type=Number(1.0), default=1800.0, help="It must be done within these (default 1800).")
@click.option("--pip", "pip_words", multiple=True, help="A further argument of pip install, such as --index-url=URL.")
def setup_(rival: str, seconds: float, pip_words: tuple[str, ...]) -> int:
    set_up(seconds, note, pip_words)
    return 0


@command.command("jobs", help="List the jobs in the background.")
@json_flag
def jobs_(as_json: bool) -> int:
    found = jobs()
    if as_json:
        for job in found:
            print_json(
                {"job": job.number, "words": job.words, "begun": job.begun, "state": job.state, "status": job.status}
            )
    else:
        rows = [[job.number, _state(job), job.begun, " ".join(job.words)] for job in found]
        print_table(("job", "state", "begun", "tilesmith gemm"), rows, below=("tilesmith gemm",))
    return 0


@command.command("log", help="Print what a job has printed.")
@click.argument("number", type=click.IntRange(1))
def log_(number: int) -> int:
    click.echo(log_of(job_of(number)), nl=False)
    return 0


@command.command("stop", help="End a job; what it has measured is kept.")
@click.argument("number", type=click.IntRange(1))
def stop_(number: int) -> int:
    job = job_of(number)
    if job.state != RUNNING:
        raise ArgumentError(f"job {number} does not run: it {_state(job)}")
    job = stop_job(job)
    click.echo(f"job {number} {_state(job)}")
    return 0 if job.state != RUNNING else 1


def _state(job: Job) -> str:
    return f"{job.state} ({job.status})" if job.status is not None else job.state


def _asked(words: Sequence[str]) -> list[Asked]:
    """The requests: each line of a file, or the typed words; words behind a file's name are added to each line."""
    if words and "=" not in words[0] and os.path.isfile(words[0]):
        text = read_named(words[0], _MOST_WORDS).decode(errors="replace")
        lines = [line.partition("#")[0].split() for line in text.splitlines()]
        return [read_line(line, words[1:]) for line in lines if line]
    return [read_words(words)]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
