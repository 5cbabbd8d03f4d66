"""An answer of one machine, measured on another one: what ``trust_verify`` does with an answer that was shipped."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.db.layers import Layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch.locations import open_cache, target_of
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import TRUSTED_RATIO, resolve
from tilesmith.errors import FleetError
from tilesmith.fleet.outbox import own_folder
from tilesmith.fleet.tasks import Checked
from tilesmith.problems.keys import parse_key
from tilesmith.targets.cuda_driver import device_ordinal

VERIFIED = "verify"  # the origin of a record that was timed again


def check_answer(problem: str, target: str, answers: Sequence[Record], device: str) -> Checked:
    """Measure the best of ``answers`` here; if it is slower than its record by more than a tenth, search here too.

    No database of this machine takes part, and none is written. Raises what ``resolve`` raises, and ``FleetError`` if
    there is no answer to measure.
    """
    told = {(each.solver, each.config): each.time_us for each in answers if each.ok and each.time_us is not None}
    if not told:
        raise FleetError(f"no answer for {problem} to check")
    team, user = open_database(None), open_database(None)
    team.source = "the fleet's answers"
    team.put_results(answers)
    choice = resolve(
        Request(
            parse_key(problem),
            target_of(target, None, device),
            "trust_verify",
            Layers((team, user)),
            open_cache(),
            device=max(0, device_ordinal(device)),
        )  # fmt: skip
    ).choice
    chosen = f"{choice.solver} {choice.config}".strip()
    here_us, record_us = choice.time_us, min(told.values())
    for record in user.ranking(problem, target):
        if record.origin == VERIFIED and record.time_us is not None:
            here_us, record_us = record.time_us, told[record.solver, record.config]
            return Checked(own_folder().name, here_us, record_us, here_us <= TRUSTED_RATIO * record_us, chosen)
    return Checked(own_folder().name, here_us, record_us, False, chosen)
