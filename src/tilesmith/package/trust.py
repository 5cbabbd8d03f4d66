"""Who signed a package, and whether this machine trusts the signer."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.errors import PackageError
from tilesmith.package.keys import fingerprint, held_keys
from tilesmith.runtime.packages import PackageReader


@dataclass(frozen=True)
class Signer:
    """The finding about the signature of a package.

    ``name`` is that of the trusted key, empty if the key is not trusted; ``fingerprint`` the key's, empty for a package
    without a signature; ``problem`` says why the package would not be accepted as signed, empty if it would be.
    """

    name: str
    fingerprint: str
    problem: str
    is_wrong: bool = False  # the signature is not that of the key: the package has been changed

    @property
    def text(self) -> str:
        """In words, after the package's name: ``signed by NAME SHA256:...``, or what is wrong."""
        return self.problem or f"signed by {self.name} {self.fingerprint}"


def examine(package: PackageReader) -> Signer:
    """The signer of a package, without a refusal: for ``package info`` and ``package verify``."""
    if not package.public_key:
        return Signer("", "", "not signed")
    try:
        package.check_signature()
    except PackageError:
        return wrong_signature(package.public_key)
    return standing(package.public_key)


def wrong_signature(public_key: bytes) -> Signer:
    """The finding about a signature that is not the key's."""
    mark = fingerprint(public_key)
    return Signer("", mark, f"wrongly signed: the key {mark} did not sign these bytes", True)


def standing(public_key: bytes) -> Signer:
    """The finding about a right signature by this key."""
    mark = fingerprint(public_key)
    held = [each for each in held_keys() if each.key.data == public_key]
    revoked = next((each for each in held if each.is_revoked), None)
    if revoked is not None:
        return Signer("", mark, f"signed by {revoked.key.name} {mark}, a key that {revoked.file} revokes")
    if not held:
        return Signer("", mark, f"signed by the key {mark}, which is not trusted: `tilesmith package trust KEY`")
    return Signer(held[0].key.name, mark, "")


def signer_of(package: PackageReader) -> str | None:
    """The name of the trusted key that signed a package.

    The signature covers every byte that is not the signature, through the tree of digests: what the same
    ``PackageReader`` reads afterwards is what was signed. Another file, or the same path opened again, has to be asked
    again.

    Args:
        package: An open package; its entries need not have been read.

    Returns:
        The name; None for a package without a signature.

    Raises:
        PackageError: The signature is wrong, or its key is not trusted or revoked; the message has the key's
            fingerprint.
    """
    found = examine(package)
    if not found.fingerprint:
        return None
    if found.problem:
        raise PackageError(f"{f'{package.path}: ' if package.path else ''}it is {found.problem}")
    return found.name
