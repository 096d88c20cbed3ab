"""Reading prompts from a person at a terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from toolnexus.cli import slash
from toolnexus.cli.render import dumb
from toolnexus.errors import MissingExtra

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.completion import Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import has_focus
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.plain_text import PlainTextOutput
except ImportError as exc:
    raise MissingExtra("The toolnexus commands", extra="cli") from exc

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.key_binding import KeyPressEvent

    from toolnexus.cli.render import Notes
    from toolnexus.cli.session import Interrupts


class Terminal:
    """A person at the terminal, who is asked while a run waits. Ctrl-C interrupts the run, as if nobody was asked."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._session = _session()

    async def line(self, prompt: str, *, default: str = "") -> str | None:
        """What the person types. None: Ctrl-D."""
        with self._notes.held():
            try:
                return await self._session.prompt_async(prompt, default=default, handle_sigint=False)
            except EOFError:
                return None
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                return None


Choices = Callable[[str], Awaitable[Iterable[str]]]
"""What may stand after a command of this name."""


async def typed(notes: Notes, interrupts: Interrupts, *, history: Path | None, choices: Choices) -> AsyncGenerator[str]:
    """Yield what a person types, until Ctrl-D or Ctrl-C twice.

    Args:
        history: Where it is remembered for the next time. None: nowhere.
        choices: What Tab offers.
    """
    session = _session(history=_history(history), completer=_Completer(choices))
    while True:
        try:
            line = await session.prompt_async("› ")
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupts.press():
                return
            notes.line("Ctrl-C again, or Ctrl-D, leaves.", style="dim")
        else:
            yield line


class _Completer(Completer):
    """Completes commands, what stands after them, and files after an `@`."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Only the other one is asked: a store may have to be looked at."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """What may become of what stands before the cursor."""
        text = document.text_before_cursor
        word = document.get_word_before_cursor(WORD=True)
        if text.startswith("/") and not text.startswith("//"):
            name, space, argument = text[1:].partition(" ")
            offered = await self._choices(name) if space else [command.name for command in slash.COMMANDS]
            begun = argument.lstrip() if space else name
            for each in offered:
                if each.startswith(begun):
                    yield Completion(each, start_position=-len(begun))
        elif word.startswith("@"):
            path = Document(word[1:].removeprefix('"'))
            for each in self._paths.get_completions(path, complete_event):
                yield each


class _History(FileHistory):
    """A file for the person's eyes only. One that cannot be written is no reason to stop."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        return InMemoryHistory()
    return _History(path)


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter begins a line. What is pasted keeps its lines."""
    bindings = KeyBindings()

    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    typing = has_focus(DEFAULT_BUFFER)  # and not in the field for what is searched
    bindings.add("enter", filter=typing)(send)
    bindings.add("escape", "enter", filter=typing)(begin_line)
    return bindings


def _session(*, history: History | None = None, completer: Completer | None = None) -> PromptSession[str]:
    # The prompt goes to stderr: stdout is the answer's.
    if dumb():
        with create_app_session(output=PlainTextOutput(sys.stderr)):  # given as an argument, it would be redrawn
            return PromptSession(history=history)
    chats = completer is not None
    return PromptSession(
        output=create_output(stdout=sys.stderr),
        history=history,
        completer=completer,
        complete_while_typing=False,
        multiline=chats,
        key_bindings=_keys() if chats else None,
        prompt_continuation="  ",
    )
