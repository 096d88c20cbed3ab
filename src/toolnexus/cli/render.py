"""What a person sees of a run: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from toolnexus import (
    Event,
    Finished,
    ReasoningDelta,
    Retrying,
    StepFinished,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from toolnexus.cli.markdown import MarkdownAnswer, visible
from toolnexus.cli.output import Records
from toolnexus.errors import MissingExtra

try:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.live import Live
    from rich.style import Style
    from rich.text import Text
    from rich.theme import Theme
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from toolnexus import CallRecord
    from toolnexus.cli.output import Form

PATIENCE = 0.3
"""Seconds before it is shown that something is being waited for."""
WIDTH = 100
_AROUND = len("⏺ ()")


class Answer(Protocol):
    """Where the answer goes."""

    def text(self, piece: str) -> None: ...
    def flush(self) -> None:
        """Something else is printed next."""
        ...

    def close(self) -> None:
        """The answer has ended. Raises `OSError` if it could not be written."""
        ...


class PlainAnswer:
    """Writes the answer as it is, to a terminal without what could drive it. What cannot be written is no reason to
    stop: the turn is still to be stored.

    A reader that went away wanted no more; any other failure is raised by `close`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._terminal = stream.isatty()
        self._line_open = False
        self._failure: OSError | None = None

    def text(self, piece: str) -> None:
        self.raw(visible(piece) if self._terminal else piece)

    def raw(self, piece: str) -> None:
        """Write what is known to do a terminal no harm."""
        if piece:
            self._line_open = not piece.endswith("\n")
            self._write(piece)

    def flush(self) -> None:
        if self._line_open:
            self._line_open = False
            self._write("\n")

    def close(self) -> None:
        self.flush()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            forget(self._stream)
            self._stream = None
            self._failure = None if isinstance(error, BrokenPipeError) else error


def forget(stream: TextIO) -> None:
    """Let what a stream still holds and cannot write go nowhere, or Python complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fancy(stream: TextIO) -> bool:
    """Whether a layout for people and redrawing are welcome there."""
    return stream.isatty() and not dumb()


def coloured(stream: TextIO) -> bool:
    """Whether colours, and bold or dim letters, are welcome there."""
    return fancy(stream) and not os.environ.get("NO_COLOR")


def dumb() -> bool:
    """Whether the terminal only writes letters."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def _look(stream: TextIO, *, into: TextIO | None = None) -> dict[str, Any]:
    """How a console on a stream is to look. Without a colour system rich leaves out bold and dim as well.

    Args:
        into: What it writes to instead.
    """
    return {
        "file": into or stream,
        "color_system": "auto" if coloured(stream) else None,
        "theme": Theme({"markdown.code": "bold cyan"}),  # rich's own has a black background, whatever the terminal's is
    }


def width(stream: TextIO) -> int:
    """Characters that a line there may have."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if stream.isatty() else WIDTH


class Lines:
    """Writes lines to stdout: what a command was asked for.

    Args:
        verbatim: Leave characters in that could drive a terminal. For programs.
    """

    def __init__(self, *, verbatim: bool = False) -> None:
        self._out = PlainAnswer(sys.stdout)
        self._coloured = coloured(sys.stdout)
        self._verbatim = verbatim
        self._laid_out = MarkdownAnswer(Console(**_look(sys.stdout))) if fancy(sys.stdout) else None

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a line. The style is for people who see colours."""
        text = text if self._verbatim else visible(text)
        if style and self._coloured:
            text = Style.parse(style).render(text, color_system=ColorSystem.STANDARD)
        self._out.raw(f"{text}\n")

    def said(self, who: str, text: str) -> None:
        """Write what a model said: on a terminal laid out as Markdown."""
        if self._laid_out is None:
            self.line(f"{who}: {text}")
            return
        self.line(f"{who}:")
        self._laid_out.text(text)
        self._laid_out.close()

    def close(self) -> None:
        """All is written. Raises `OSError` if it could not be."""
        self._out.close()


class _Into(io.StringIO):
    """Lets rich write where writing never fails before the turn is stored."""

    def __init__(self, out: PlainAnswer) -> None:
        super().__init__()
        self._out = out

    def write(self, text: str, /) -> int:
        self._out.raw(text)
        return len(text)


class NoAnswer:
    """Where an answer goes that is not shown while it is written."""

    def text(self, piece: str) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def records(form: Form | None, out: Answer) -> Records | None:
    """What writes answers to stdout as JSON. None: they are for people.

    Args:
        out: What writes there.
    """
    if form not in ("json", "jsonl"):
        return None
    return Records(out, events=form == "jsonl", indent=sys.stdout.isatty())


class Screen:
    """Shows events while they happen.

    Args:
        form: How the answer is written. None: laid out on a terminal, and as it is everywhere else.
        value: The answer is a JSON value, which is written when it is known to fit.
        reasoning: Show the model's reasoning as well.

    Attributes:
        tools: Whether the model has tools. A pipe then gets no text until it is clear that it is the answer, and not
            something said before a tool is called.
        records: Writes the answer as JSON. None: it is written for people.
    """

    def __init__(self, *, form: Form | None = None, value: bool = False, reasoning: bool = False) -> None:
        self.notes = Notes()
        self.tools = False
        out = PlainAnswer(sys.stdout)
        self._value: PlainAnswer | None = None
        self.records = records(form, out)
        self._answer: Answer
        if self.records is not None:
            self._answer = NoAnswer()
        elif value:
            self._value = out
            self._answer = NoAnswer()
        elif form == "md" or (form is None and fancy(sys.stdout)):
            into = None if sys.stdout.isatty() else _Into(out)
            self._answer = MarkdownAnswer(Console(**_look(sys.stdout, into=into)))
        else:
            self._answer = out
        self._out = out
        self._holds = not sys.stdout.isatty() or isinstance(self._answer, NoAnswer)
        self._held: list[str] = []
        self._reasoning = reasoning
        self._reasoned: list[str] = []

    def show(self, event: Event) -> None:
        if self.records is not None:
            self.records.event(event)
        match event:
            case TextDelta(text=text):
                self._said()
                if self.tools and self._holds:
                    self._held.append(text)
                else:
                    self._answer.text(text)
            case ReasoningDelta(text=text):
                self._reasoned.append(text)
            case StepFinished():
                self._said()
            case ToolStarted():
                self._end_step(called=True)
                self.notes.waiting(event.id, call_line(event.name, event.args, self.notes.width))
            case ToolProgress():
                self.notes.waiting(event.id, f"⏺ {event.name}: {event.message}")
            case ToolFinished(call=call):
                self._end_step(called=True)
                self.notes.tool(call)
            case Suspended():
                self._end_step(called=True)
            case Retrying():
                after = f"Asking {event.model} instead" if event.model else "Retrying"
                self.notes.line(f"{after} in {event.delay:.1f} s: {event.reason}", style="yellow")
                self.notes.waiting("", "…")
            case Finished(result=result):
                if self._value is not None and result.status == "done":
                    self._value.text(json.dumps(result.output, indent=2, ensure_ascii=False) + "\n")
                self.close()

    def begin(self) -> None:
        """A request goes out."""
        self.notes.waiting("", "…")

    def close(self) -> None:
        """Show what was held back or is half drawn. May be called more than once."""
        self._said()
        self._end_step(called=False)
        self._answer.close()
        self._out.close()

    def _said(self) -> None:
        self.notes.still()
        if self._reasoned and self._reasoning:
            self.notes.line("".join(self._reasoned).strip(), style="dim italic")
        self._reasoned.clear()

    def _end_step(self, *, called: bool) -> None:
        held = "".join(self._held)
        self._held.clear()
        if held and called:
            self.notes.line(held.strip(), style="dim")
        elif held:
            self._answer.text(held)
        self._answer.flush()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Say nothing more; rich would end the process."""
        self.quiet = True
        forget(sys.stderr)


class Notes:
    """Everything that is not the answer, on stderr.

    Attributes:
        terminal: Whether a person reads it.
    """

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self._live_allowed = fancy(sys.stderr)
        self._console = _Console(**_look(sys.stderr), highlight=False, markup=False, emoji=False)
        self._waiting: dict[str, tuple[str, float]] = {}
        self._held: list[tuple[str, str]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._live: Live | None = None

    @property
    def width(self) -> int:
        """Characters that a line may have."""
        return width(sys.stderr)

    def line(self, text: str, *, style: str = "") -> None:
        """Print a line."""
        if self._held is not None:
            self._held.append((text, style))
            return
        self._hide()
        try:
            self._console.print(Text(visible(text), style=style), soft_wrap=True)
        except OSError:  # a full disk, say: notes are not worth more than the answer
            self._console.on_broken_pipe()
        self._show_soon()

    @contextmanager
    def held(self) -> Generator[None]:
        """Leave the screen to somebody else. What was to be printed meanwhile comes afterwards."""
        self._hide()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for text, style in held:
                self.line(text, style=style)
            self._show_soon()

    def tool(self, call: CallRecord) -> None:
        """Print how a call went."""
        self._waiting.pop(call.id, None)
        mark, style = ("✗", "red") if call.is_error else ("✓", "green")
        took = f"{call.seconds * 1000:.0f} ms" if call.seconds < 10 else f"{call.seconds:.1f} s"
        # On a terminal, the whole line is to fit into one; elsewhere, the call alone has that length.
        room = self.width - len(f" {took} {mark}") if self.terminal else WIDTH
        self.line(f"{call_line(call.name, call.args, room)} {took} {mark}", style=style)
        if call.is_error:
            self.line(f"  {cut(call.output, self.width - 2 if self.terminal else WIDTH)}", style=style)
        if not self._waiting:
            self.waiting("", "…")

    def waiting(self, key: str, line: str) -> None:
        """Show, if it takes long, that something is being waited for."""
        if key:
            self._waiting.pop("", None)
        since = self._waiting.get(key, ("", time.monotonic()))[1]
        self._waiting[key] = (line, since)
        self._show_soon()

    def still(self) -> None:
        """Nothing is being waited for."""
        self._waiting.clear()
        self._hide()

    def _show_soon(self) -> None:
        idle = self._live is None and self._timer is None and self._held is None
        if self._live_allowed and idle and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._show)

    def _show(self) -> None:
        self._timer = None
        self._live = Live(
            console=self._console,
            get_renderable=self._waiting_lines,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _waiting_lines(self) -> Text:
        now = time.monotonic()
        lines = [f"{visible(line)} {now - since:.0f} s" for line, since in list(self._waiting.values())]
        return Text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis")

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live is not None:
            self._live.stop()
            self._live = None


def call_line(name: str, args: Mapping[str, Any] | str, room: int = WIDTH) -> str:
    """A call on one line of about `room` characters, whatever its arguments are."""
    if isinstance(args, str):
        shown = args
    else:
        shown = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in args.items())
    return f"⏺ {name}({cut(shown, room - len(name) - _AROUND)})"


def cut(text: str, width: int) -> str:
    """A text on one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"
