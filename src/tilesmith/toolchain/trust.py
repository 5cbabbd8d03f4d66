"""Decides which files are used: those that no other user can have written.

A kernel from the cache runs as part of this process, and a database says which kernel runs. So a folder is used only if
this user, root, or the owner of the installed package (whose code runs here in any case) owns it, and no other user can
write to it. ``TILESMITH_TRUST_FOLDER`` names folders that are used all the same. ``docs/trust.md`` has the whole rule.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tilesmith import env

_GROUP, _EVERYONE = 0o020, 0o002


def why_distrusted(path: str | os.PathLike[str]) -> str | None:
    """The reason why ``path`` is not used, with the command to type. None if it is used, or does not exist.

    Links are followed: what counts is the file or folder at their end.
    """
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    reason = reason_of(about)
    return advice(path, reason) if reason is not None and not is_allowed(path) else None


def reason_of(about: os.stat_result) -> str | None:
    """The name of another user that can have written a file or folder; None if there is none."""
    if not hasattr(os, "geteuid"):  # Windows: its access lists are not read
        return None
    if about.st_uid not in (os.geteuid(), 0) and about.st_uid != _owner_of_package():
        return f"it belongs to {_user(about.st_uid)}"
    if about.st_mode & _EVERYONE:
        return "every user can write to it"
    if about.st_mode & _GROUP and not _is_own_group(about.st_gid):
        return f"group {about.st_gid} can write to it"
    return None


def advice(path: str | os.PathLike[str], reason: str) -> str:
    """The reason, and what to type."""
    close = f"`chmod go-w {path}` to keep others out, or " if "write" in reason else ""
    place = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    return f"{reason}; type {close}`export TILESMITH_TRUST_FOLDER={place}` to use it all the same"


def is_allowed(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` lies in a folder of TILESMITH_TRUST_FOLDER."""
    folders = env.TRUST_FOLDER.get()
    if not folders:
        return False
    place = Path(os.path.realpath(path))
    return any(place.is_relative_to(os.path.realpath(folder)) for folder in folders)


@lru_cache(maxsize=1)
def _owner_of_package() -> int:
    """In a container the package may belong to the user that built the image; that user's code runs here anyway."""
    try:
        about = os.stat(__file__)
    except OSError:
        return 0
    return about.st_uid if not about.st_mode & _EVERYONE else 0


@lru_cache(maxsize=64)
def _is_own_group(group: int) -> bool:
    """Whether a group has this user as its only member, as each user has one on many systems."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        found = grp.getgrgid(group)
    except KeyError:  # a container's user without a name
        return group == os.geteuid()
    return found.gr_name == user and set(found.gr_mem) <= {user}


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {number} ({pwd.getpwuid(number).pw_name})"
    except KeyError:
        return f"user {number}"
