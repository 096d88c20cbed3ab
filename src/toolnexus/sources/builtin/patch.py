"""The tool that applies a patch to several files, all of it or nothing."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from toolnexus.sources.builtin import files
from toolnexus.sources.builtin.atomic import Change, Transaction
from toolnexus.sources.builtin.hunks import patched
from toolnexus.sources.builtin.patch_format import Add, Delete, Section, Update, parse
from toolnexus.sources.builtin.text_files import TextFile
from toolnexus.sources.builtin.workspace import FileProblem, Place, Version, Workspace, version
from toolnexus.tools import JSONObject, Tool, ToolContext, ToolResult

_SCHEMA = {
    "type": "object",
    "properties": {"patchText": {"type": "string", "description": "The patch, from Begin to End."}},
    "required": ["patchText"],
    "additionalProperties": False,
}
_DESCRIPTION = """\
Change several files at once: all of the patch is applied, or nothing of it.

*** Begin Patch
*** Add File: path/new.py
+each line of the new file
*** Update File: path/old.py
*** Move to: path/renamed.py
@@ def a_line_further_up():
 a line that stays
-a line that goes
+a line that comes
*** Delete File: path/gone.py
*** End Patch

'Move to' and what follows '@@' may be left out. The lines of a hunk that stay or go have to be in the file exactly, \
and only once after the line that '@@' names: keep about three lines around each change. The hunks of a file come in \
its order. '*** End of File' after a hunk says that it stands at the end."""


def make(workspace: Workspace) -> Tool:
    """The tool `apply_patch`."""

    def execute(args: JSONObject, ctx: ToolContext) -> ToolResult:
        return _apply(workspace, args["patchText"])

    return Tool(name="apply_patch", source="builtin", description=_DESCRIPTION, input_schema=_SCHEMA, execute=execute)


@dataclass(slots=True)
class _File:
    """One file while the sections of a patch are gone through.

    Attributes:
        before: What stood there at first. None: nothing.
        like: The file whose permissions it is to have. None: those of a new file.
        text: What it holds now. None: nothing stands there, or it was not read yet.
        there: Whether it is there now.
    """

    place: Place
    before: Version | None
    like: os.stat_result | None
    there: bool
    text: TextFile | None = None


def _apply(workspace: Workspace, text: str) -> ToolResult:
    sections = parse(text)
    with Transaction(workspace) as transaction:
        plan = _Plan(transaction)
        for section in sections:
            plan.take(section)
        if changes := plan.changes():
            transaction.commit(changes)
    return ToolResult(output="\n".join(plan.told), metadata={"changed": plan.paths()})


class _Plan:
    """What all sections together come to, each seeing the files as the ones before it left them."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._files: dict[str, _File] = {}
        self.told: list[str] = []

    def take(self, section: Section) -> None:
        match section:
            case Add(path, content):
                self._add(self._file(path, make_folders=True), TextFile(content))
            case Delete(path):
                self._delete(self._existing(path))
            case Update():
                self._update(self._existing(section.path), section)

    def _add(self, file: _File, text: TextFile) -> None:
        if file.there:
            raise FileProblem(
                f"{file.place.shown} is there already. Update it, or delete it before. Nothing was changed."
            )
        file.text, file.there = text, True
        self.told.append(f"Added {file.place.shown}")

    def _delete(self, file: _File) -> None:
        file.text, file.there = None, False
        self.told.append(f"Deleted {file.place.shown}")

    def _update(self, file: _File, section: Update) -> None:
        if file.text is None:
            loaded = files.load(file.place)
            file.text, file.before, file.like = loaded.file, version(loaded.status), loaded.status
        shown = file.place.shown
        text = file.text.with_text(patched(file.text.text, section.hunks, shown))
        if section.move_to is None:
            file.text = text
            hunks = "1 hunk" if len(section.hunks) == 1 else f"{len(section.hunks)} hunks"
            self.told.append(f"Updated {shown} ({hunks})")
            return
        target = self._file(section.move_to, make_folders=True)
        if target is not file and target.there:
            raise FileProblem(
                f"{target.place.shown} is there already, so {shown} cannot move there. Nothing was changed."
            )
        file.text, file.there = None, False
        target.text, target.there, target.like = text, True, file.like
        self.told.append(f"Moved {shown} to {target.place.shown}")

    def _existing(self, path: str) -> _File:
        file = self._file(path)
        if not file.there:
            if file.before is None:
                os.close(file.place.open_file())  # says what is there instead
            raise FileProblem(f"{file.place.shown} is not there any more at that point. Nothing was changed.")
        return file

    def _file(self, path: str, *, make_folders: bool = False) -> _File:
        place = self._transaction.place(path, make_folders=make_folders)
        known = self._files.get(place.path)
        if known is None:
            status = place.status()
            if status is not None and not stat.S_ISREG(status.st_mode):
                os.close(place.open_file())  # refuses it, and says why
            known = _File(place, None if status is None else version(status), status, there=status is not None)
            self._files[place.path] = known
        return known

    def changes(self) -> list[Change]:
        """New contents first, so that at no time a text that moves is nowhere."""
        written = [
            Change(place=file.place, data=files.encoded(file.text, file.place), seen=file.before, like=file.like)
            for file in self._files.values()
            if file.there and file.text is not None
        ]
        removed = [
            Change(place=file.place, data=None, seen=file.before)
            for file in self._files.values()
            if not file.there and file.before is not None
        ]
        return written + removed

    def paths(self) -> list[str]:
        return [file.place.path for file in self._files.values()]
