"""``tilesmith package keygen``, ``sign`` and ``trust``: keys, and what they sign."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tilesmith.cli.options import json_flag
from tilesmith.cli.terminal import complain, note, print_json, print_table, print_wrapped
from tilesmith.errors import ArgumentError, PackageError
from tilesmith.package.keys import SUFFIX, forget, held_keys, hold, parse_key, trusted_keys
from tilesmith.package.signing import PRIVATE_SUFFIX, SigningKey, load_key, make_key, read_public, sign_file
from tilesmith.reading import read_named

_MOST_PASSPHRASE = 4096

passphrase_option = click.option(
    "--passphrase-file", "passphrase", type=click.Path(path_type=Path), metavar="FILE",
    help="Whose first line is the passphrase of the private key (default: asked for).",
)  # fmt: skip


def key_option(name: str, meaning: str, *, required: bool = False) -> Callable[[Any], Any]:
    """The option that names a private key."""
    return click.option(name, "key", required=required, metavar="KEY", help=meaning)


def signing_key(word: str, passphrase: Path | None) -> SigningKey:
    """The private key of a file or a name, with a warning if other users can read it."""
    key = load_key(word, lambda: _passphrase_of(passphrase) or _asked(confirm=False))
    if key.warning:
        complain(key.warning)
    return key


@click.command("keygen", help="Make a key pair that signs packages: NAME.key, which is private, and NAME.pub.")
@click.argument("name", required=False)
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="The private key; the public one lies beside it (default: in the user's configuration folder).",
)  # fmt: skip
@click.option("--encrypt", is_flag=True, help="Ask for a passphrase for the private key.")
@passphrase_option
def keygen(name: str | None, out: Path | None, encrypt: bool, passphrase: Path | None) -> int:
    if name is None and out is None:
        raise ArgumentError("say the name of the key, or its file with -o")
    word = _passphrase_of(passphrase) or (_asked(confirm=True) if encrypt else "")
    if name is None:
        assert out is not None
        name = out.name.removesuffix(PRIVATE_SUFFIX)
    key = make_key(name, out, word)
    note(f"{key.path} is private; who has it can sign in your name")
    note(f"{key.public_path} is for those who install your packages: `tilesmith package trust {key.public_path}`")
    click.echo(f"{key.public.line}\n{key.public.fingerprint}")
    return 0


@click.command("sign", help="Verify packages and sign them in their place.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@key_option("--key", "The private key: its file, or its name.", required=True)
@passphrase_option
def sign(files: tuple[Path, ...], key: str, passphrase: Path | None) -> int:
    signer = signing_key(key, passphrase)
    for path in files:
        before = sign_file(path, signer)
        replaced = ", in place of another key" if before not in ("", signer.public.data.hex()) else ""
        print_wrapped(f"{path}: signed by {signer.public.name} {signer.public.fingerprint}{replaced}")
    return 0


@click.command("trust", help="Trust a public key: its line `ed25519:... NAME`, or its file.")
@click.argument("words", nargs=-1, metavar="[KEY]")
@click.option("--name", help="The name of the key here (default: its own).")
@click.option("--list", "as_list", is_flag=True, help="Print every key, and whether it is trusted.")
@click.option("--remove", metavar="NAME", help="Trust this key no more.")
@click.option("--revoke", is_flag=True, help="Refuse KEY, whatever other places say.")
@json_flag
def trust(
    words: tuple[str, ...], name: str | None, as_list: bool, remove: str | None, revoke: bool, as_json: bool
) -> int:
    if (bool(words) + as_list + (remove is not None)) != 1 or (revoke and not words):
        raise ArgumentError("say one of: a key to trust, --list, --remove NAME")
    if as_list:
        return _list(as_json)
    if remove is not None:
        click.echo(f"{forget(remove)}: removed")
        return 0
    text = " ".join(words)
    if name and text.startswith("ed25519:"):
        text = text.split()[0] + f" {name}"
    key = read_public(text)
    if name:
        key = parse_key(f"{key.line.split()[0]} {name}")
    path = hold(key, is_revoked=revoke)
    print_wrapped(f"{path}: {key.name} {key.fingerprint} is {'revoked' if revoke else 'trusted'}")
    return 0


def _list(as_json: bool) -> int:
    good = {key.data for key in trusted_keys()}
    rows = []
    for held in held_keys():
        key, state = held.key, "trusted" if held.key.data in good else "revoked"
        rows.append([key.name, state, key.fingerprint, str(held.file)])
        if as_json:
            print_json({"name": key.name, "state": state, "fingerprint": key.fingerprint, "key": key.line,
                        "file": str(held.file)})  # fmt: skip
    if not rows:
        note(f"no key is trusted: `tilesmith package trust FILE{SUFFIX}`")
    elif not as_json:
        print_table(("name", "state", "fingerprint", "file"), rows, below=("file",))
    return 0


def _passphrase_of(path: Path | None) -> str:
    if path is None:
        return ""
    lines = read_named(path, _MOST_PASSPHRASE).decode("utf-8", "replace").splitlines()
    if not lines or not lines[0]:
        raise PackageError(f"{path}: its first line is empty; it must be the passphrase")
    return lines[0]


def _asked(*, confirm: bool) -> str:
    word: str = click.prompt("passphrase", hide_input=True, err=True, confirmation_prompt=confirm)
    return word
