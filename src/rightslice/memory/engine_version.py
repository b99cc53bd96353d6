"""The version of an engine that is asked about, against those that were read."""

from __future__ import annotations

import re
from typing import Final

from rightslice.catalogue.engines import EngineFacts
from rightslice.catalogue.versions import version_key
from rightslice.core.errors import BadInputError, Diagnostic

_VERSION: Final = re.compile(r"v?\d+(\.\d+)*(\.x)?([.-]?(dev|a|b|rc|post)\d*)?(\+[\w.]+)?")


def known_version(facts: EngineFacts, version: str) -> tuple[str, tuple[str, ...]]:
    """The version asked about (the newest known when empty), and a note where it lies outside those that were read.

    Raises BadInputError RS0501 for what is no version.
    """
    oldest, newest = facts.oldest_version, facts.latest_version
    known = f"{facts.title} {oldest} to {newest}" if oldest != newest else f"{facts.title} {newest}"
    if not version:
        return newest, ()
    if not _VERSION.fullmatch(version):
        message = f'"{version[:30]}" is no version of {facts.title}'
        raise BadInputError(Diagnostic("RS0501", message, None, f"{known} were read; {newest} is taken without one"))
    if version_key(version) > version_key(newest):
        return version, (f"{facts.title} {version} is newer than what was read ({known}): taken as {newest}",)
    if version_key(version.removesuffix(".x")) < version_key(oldest):
        return version, (f"{facts.title} {version} is older than what was read ({known}): taken as {oldest}",)
    return version, ()
