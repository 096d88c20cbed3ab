"""How what a run asks is answered: by what was granted in advance, by a person, or not now."""

from __future__ import annotations

import asyncio
import glob
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from toolnexus import ConfigurationError
from toolnexus.cli import previews
from toolnexus.cli.forms import fields_of, read_all
from toolnexus.cli.questions import questions_of

if TYPE_CHECKING:
    from pathlib import Path

    from toolnexus import Tool
    from toolnexus.cli.forms import Field
    from toolnexus.cli.grants import Grants
    from toolnexus.cli.questions import Question
    from toolnexus.cli.render import Notes
    from toolnexus.suspension import Answer, Request

_OURS = ("native", "builtin", "skill", "http")
"""Sources whose word counts when they say that a tool only reads. What a server says of its own is a hint."""
_OUTWARD = ("webfetch",)
"""Built-in tools that only read, and could tell anybody what was read before: in an address."""


class Person(Protocol):
    """Somebody at a terminal."""

    async def line(self, prompt: str, *, default: str = "") -> str | None:
        """What they type. None: they would rather not say now."""
        ...


class Approvals:
    """Answers requests. One at a time goes to the person.

    Args:
        person: None: nobody is there, and what was not granted in advance goes on waiting.
        vouched: Whether what a tool says of itself may count. None: of all.
        root: Where a built-in tool of a name works. None: there is none of that name.
    """

    def __init__(
        self,
        grants: Grants,
        notes: Notes,
        person: Person | None,
        *,
        vouched: Callable[[Tool], bool] | None = None,
        root: Callable[[str], Path | None] | None = None,
    ) -> None:
        self._grants = grants
        self._notes = notes
        self._person = person
        self._vouched = vouched
        self._root = root
        self._turn = asyncio.Lock()

    def needed(self, tool: Tool, _: Mapping[str, Any]) -> bool:
        """Whether a call has to be approved: unless we say ourselves that it changes nothing, or it was granted."""
        return self.asks(tool) and not self._grants.cover(tool.name)

    def asks(self, tool: Tool) -> bool:
        """Whether a tool has to be approved where nothing was granted."""
        ours = tool.source in _OURS and (self._vouched is None or self._vouched(tool))
        harmless = tool.read_only and not (tool.source == "builtin" and tool.name in _OUTWARD)
        return tool.needs_approval or not (ours and harmless)

    async def answer(self, request: Request) -> Answer | None:
        """The answer to a request. None: there is none yet."""
        async with self._turn:
            if request["kind"] == "approval":
                return await self._approve(request)
            if self._person is None:
                return None
            if request["kind"] == "retry":
                return await self._retry(request, self._person)
            return await self._ask(request, self._person)

    async def _approve(self, request: Request) -> Answer | None:
        tool = tool_of(request)
        if self._grants.cover(tool):
            return granted(request)
        if self._person is None:
            return None
        self._notes.line(f"{tool} wants to run:", style="bold yellow")
        await self._show_arguments(request)
        while True:
            said = await self._person.line("[y]es, once · in this [c]onversation · [a]lways · [e]dit · [n]o › ")
            if said is None:
                return None
            word, _, rest = said.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return granted(request)
                case "c":
                    self._grants.add(glob.escape(tool))
                    return granted(request)
                case "a":
                    if await self._always(rest, tool, self._person):
                        return granted(request)
                case "e":
                    if (arguments := await self._edited(request, self._person)) is not None:
                        return granted(request, arguments)
                case "n" | "no":
                    reason = rest or await self._person.line("Why not? The model is told. › ")
                    return None if reason is None else denied(request, reason.strip())
                case _:
                    self._notes.line("Type one of the letters y, c, a, e and n; Ctrl-D leaves it open.", style="dim")

    async def _always(self, pattern: str, tool: str, person: Person) -> bool:
        """Ask for which tools it is meant, and remember it. Returns whether this one is among them."""
        named = pattern or await person.line("Always, for tools named › ", default=glob.escape(tool))
        if named is None or not named.strip():
            return False
        try:
            self._grants.add_for_always(named.strip())
        except (ConfigurationError, OSError) as error:
            self._notes.line(f"That cannot be remembered: {error}", style="red")
            return False
        self._notes.line(f"Remembered in {self._grants.file}. Delete it there to be asked again.", style="dim")
        if self._grants.cover(tool):
            return True
        self._notes.line(f"That does not cover {tool}.", style="yellow")
        return False

    async def _edited(self, request: Request, person: Person) -> dict[str, Any] | None:
        """The arguments as the person wants them. None: they changed their mind."""
        text = json.dumps(arguments_of(request), ensure_ascii=False)
        while True:
            edited = await person.line("Arguments › ", default=text)
            if edited is None:
                return None
            try:
                arguments = json.loads(edited)
            except ValueError as error:
                self._notes.line(f"That is no JSON: {error}.", style="yellow")
            else:
                if isinstance(arguments, dict):
                    return cast("dict[str, Any]", arguments)
                self._notes.line("Arguments are an object: {…}.", style="yellow")
            text = edited

    async def _retry(self, request: Request, person: Person) -> Answer | None:
        self._notes.line(f"{tool_of(request)} may have run already: the turn ended while it did.", style="bold yellow")
        await self._show_arguments(request)
        while True:
            said = await person.line("Run it again? [y]es · [n]o, what it did stays unknown › ")
            match said and said.strip().lower():
                case None:
                    return None
                case "y" | "yes":
                    return granted(request)
                case "n" | "no":
                    return denied(request, "")
                case _:
                    self._notes.line("Type y or n; Ctrl-D leaves it open.", style="dim")

    async def _ask(self, request: Request, person: Person) -> Answer | None:
        if questions := questions_of(request):
            return await self._ask_each(request, questions, person)
        if fields := fields_of(request):
            return await self._fill_in(request, fields, person)
        self._notes.line(request["prompt"], style="bold yellow")
        if url := request.get("url"):
            self._notes.line(url)
        said = await person.line("Your answer; an empty line declines › ")
        if said is None:
            return None
        return answered(request, said.strip()) if said.strip() else denied(request, "")

    async def _ask_each(self, request: Request, questions: Sequence[Question], person: Person) -> Answer | None:
        answers: list[str | list[str] | None] = []
        for question in questions:
            self._notes.line(question.text, style="bold yellow")
            for number, option in enumerate(question.options, 1):
                self._notes.line(f"  {number}. {option}")
            several = "Numbers, separated by commas" if question.multiple else "A number"
            what = f"{several}, or your own words" if question.options else "Your answer"
            said = await person.line(f"{what}; an empty line skips › ")
            if said is None:
                return None
            answers.append(question.read(said))
        return replied(request, answers)

    async def _fill_in(self, request: Request, fields: Sequence[Field], person: Person) -> Answer | None:
        self._notes.line(request["prompt"], style="bold yellow")
        values: dict[str, Any] = {}
        for field in fields:
            self._notes.line(field.text)
            for number, option in enumerate(field.options, 1):
                self._notes.line(f"  {number}. {option}")
            while True:
                said = await person.line(f"{field.name}; an empty line {'declines' if field.needed else 'skips'} › ")
                if said is None:
                    return None
                if not said.strip():
                    break
                try:
                    values[field.name] = field.read(said)
                    break
                except ValueError as error:
                    self._notes.line(str(error), style="yellow")
            if field.needed and field.name not in values:
                return denied(request, "")
        return {"id": request["id"], "ok": True, "data": values}

    async def _show_arguments(self, request: Request) -> None:
        root = self._root(tool_of(request)) if self._root is not None else None
        for line in await asyncio.to_thread(previews.shown, tool_of(request), arguments_of(request), root=root):
            self._notes.line(line.text, style=line.style)


def tool_of(request: Request) -> str:
    """The tool that wants to run. Empty: a tool asks something of its own."""
    return str(_data(request).get("tool", "")) if request["kind"] in ("approval", "retry") else ""


def arguments_of(request: Request) -> Mapping[str, Any]:
    """What the tool that wants to run is called with."""
    return cast("Mapping[str, Any]", _data(request).get("arguments", {}))


def granted(request: Request, arguments: Mapping[str, Any] | None = None) -> Answer:
    """Yes. `arguments` take the place of those that were shown."""
    if arguments is None:
        return {"id": request["id"], "ok": True}
    return {"id": request["id"], "ok": True, "data": {"arguments": dict(arguments)}}


def answered(request: Request, text: str) -> Answer:
    """Yes, with what was asked for: a text, or the values of a form.

    Raises:
        ValueError: The text does not fill the form in. The message says what would.
    """
    fields = fields_of(request)
    return {"id": request["id"], "ok": True, "data": read_all(fields, text) if fields else text}


def replied(request: Request, answers: Sequence[str | list[str] | None]) -> Answer:
    """Yes, with the answers to questions; no, if all were skipped."""
    if not any(answers):
        return denied(request, "")
    return {"id": request["id"], "ok": True, "data": {"answers": list(answers)}}


def denied(request: Request, reason: str) -> Answer:
    """No. An empty reason is none."""
    return {"id": request["id"], "ok": False, **({"reason": reason} if reason else {})}  # pyright: ignore[reportReturnType]


def _data(request: Request) -> Mapping[str, Any]:
    data = request.get("data")
    return cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
