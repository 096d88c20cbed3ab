"""Reads and writes whole text files for the tools that change them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from toolnexus import _media
from toolnexus.sources.builtin.atomic import Change
from toolnexus.sources.builtin.text_files import TextFile, read_text
from toolnexus.sources.builtin.workspace import FileProblem, Place, version

MAX_BYTES = 8 * 1024 * 1024
"""Bytes of a file that is changed. It is held in memory several times, and each step over all of it stops the event
loop for as long as it takes, which stays below 50 ms.
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A text file as it stands, and what tells whether it is still the same."""

    file: TextFile
    status: os.stat_result


def load(place: Place) -> Loaded:
    """The text file at a place.

    Raises:
        FileProblem: There is none, it is too large, or it is no text.
        PathRefused: It must not be read.
    """
    with os.fdopen(place.open_file(), "rb") as opened:
        status = os.fstat(opened.fileno())
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FileProblem(
            f"{place.shown} is larger than {_media.human_size(MAX_BYTES)}, which is too large to be changed."
        )
    file = read_text(data)
    if file is None:
        raise FileProblem(f"{place.shown} is not a text file, so it cannot be changed as text.")
    return Loaded(file, status)


def encoded(file: TextFile, place: Place) -> bytes:
    """The bytes of a text for the file at a place.

    Raises:
        FileProblem: Its encoding lacks a character.
    """
    try:
        return file.to_bytes()
    except UnicodeEncodeError as error:
        character = file.text[error.start]
        raise FileProblem(
            f"{place.shown} is {file.encoding.described()}, and has no way to write {character!r}. Leave it out, or "
            "write the whole file anew in UTF-8."
        ) from error


def replacing(place: Place, loaded: Loaded, file: TextFile) -> Change:
    """The change from a loaded file to another text in the same encoding."""
    return Change(place=place, data=encoded(file, place), seen=version(loaded.status), like=loaded.status)
