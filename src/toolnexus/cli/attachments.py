"""Files that go along with a question: those that it names with an `@`, and those of `--attach`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolnexus.cli.exits import Misused
from toolnexus.errors import ConfigurationError

if TYPE_CHECKING:
    from toolnexus.messages import Part, Prompt

_NAMED = re.compile(r"""(?<![^\s(\[{"'])(\\?)@(?:"([^"\n]+)"|([^\s"]\S*))""")
_AFTER = ".,;:!?)]}'\""
"""What may follow a name without being part of it."""


class Found(NamedTuple):
    """What a text names.

    Attributes:
        text: The text as it is sent: the names stay, because a question may say something of each file.
        files: The files in it, each once.
        missing: What looks like one and is none.
    """

    text: str
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def find(words: Sequence[str]) -> Found:
    """Look for the files that words name.

    Args:
        words: Each may be a whole line; or what a shell made of `@"two words.pdf"`.
    """
    files: dict[str, None] = {}
    missing: dict[str, None] = {}

    def named(match: re.Match[str]) -> str:
        escaped, quoted, bare = match.groups()
        if escaped:
            return match[0][1:]
        name = _file(quoted) if quoted else _bare(bare)
        if name is None:
            missing[quoted or bare.rstrip(_AFTER) or bare] = None
        else:
            files[name] = None
        return match[0]

    text: list[str] = []
    for word in words:
        if word.startswith("@") and (name := _file(word[1:])) is not None:
            files[name] = None
            text.append(word)
        else:
            text.append(_NAMED.sub(named, word))
    return Found(" ".join(text), tuple(files), tuple(missing))


def told(missing: Iterable[str]) -> Iterable[str]:
    """Lines that say what was no file."""
    for name in missing:
        what = "is a folder" if _is(name, Path.is_dir) else "names no file"
        yield f"@{name} {what}, so it was sent as text."


def prompt(text: str, files: Sequence[str]) -> Prompt:
    """A question with files, or URLs of files, after it.

    Raises:
        Misused: One of them cannot be attached. The message names it.
    """
    if not files:
        return text
    from toolnexus.parts import MAX_BYTES, file

    sizes = {name: _size(name) for name in files}
    if len(files) > 1 and (total := sum(sizes.values())) > MAX_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise Misused(
            f"The files to attach have {total / 1e6:.1f} MB together, most of it {largest!r}; "
            f"no more than {MAX_BYTES / 1e6:.1f} MB can be attached. Leave some out, or make them smaller."
        )
    parts: list[Part] = []
    for name in files:
        try:
            parts.append(file(name if _elsewhere(name) else _path(name)))
        except ConfigurationError as error:
            raise Misused(str(error)) from error
    return [{"type": "text", "text": text}, *parts]


def _bare(word: str) -> str | None:
    """The file that a word names, without the punctuation of its sentence. None: it names none."""
    while word:
        if (name := _file(word)) is not None:
            return name
        if word[-1] not in _AFTER:
            return None
        word = word[:-1]
    return None


def _file(name: str) -> str | None:
    return name if _is(name, Path.is_file) else None


def _is(name: str, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(_path(name))
    except (OSError, ValueError, RuntimeError):
        return False


def _path(name: str) -> Path:
    return Path(name).expanduser()


def _elsewhere(name: str) -> bool:
    return "://" in name or name[:5].lower() == "data:"


def _size(name: str) -> int:
    """Bytes of a file. 0: it has none here; whatever is wrong with it is said when it is read."""
    if _elsewhere(name):
        return 0
    try:
        return _path(name).stat().st_size
    except (OSError, ValueError, RuntimeError):
        return 0
