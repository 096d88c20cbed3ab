"""What a tool is, what it gets and what it gives back. Every source makes these, and nothing else runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from toolnexus.messages import Part
    from toolnexus.suspension import Answer, Request

JSONObject: TypeAlias = dict[str, Any]


def _no_arguments() -> JSONObject:
    return {"type": "object", "properties": {}}


class InvalidArguments(Exception):
    """A call's arguments do not fit the tool. The model is told the text and may try again.

    Attributes:
        places: Where they do not, without what is wrong there; empty for the arguments as a whole. The first few.
    """

    places: tuple[str, ...] = ()

    @classmethod
    def listing(cls, problems: Iterable[tuple[Sequence[str | int], str]]) -> InvalidArguments:
        """From where and what is wrong; the first few are told, each cut."""
        first = list(islice(problems, _PROBLEMS_TOLD + 1))
        lines = [f"- {_place(path)}{_cut(problem)}" for path, problem in first[:_PROBLEMS_TOLD]]
        more = ["- and more"] if len(first) > _PROBLEMS_TOLD else []
        error = cls("\n".join(["The arguments do not fit.", *lines, *more]))
        error.places = tuple(_place(path).removesuffix(": ") for path, _ in first[:_PROBLEMS_TOLD])
        return error


_PROBLEMS_TOLD = 5
_MAX_PROBLEM = 200


def _place(path: Sequence[str | int]) -> str:
    """`["a", 0, "b"]` as `a[0].b: `; empty for the arguments as a whole."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{_cut(steps.removeprefix('.'))}: " if steps else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_PROBLEM else f"{text[:_MAX_PROBLEM]}…"


class BrokenSchema(Exception):
    """A schema that no arguments can be checked against, so its tool is left out. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that the model asked for. `arguments` is its raw JSON text, not yet checked.

    Attributes:
        id: Unique within one reply only; providers may number from 0 in each reply.
        name: The tool's own name, mapped back from what the wire could take.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave back, ready for the model.

    Attributes:
        output: The text that the model reads.
        is_error: Whether the model is told that the call failed.
        parts: Content parts beside the text (`image_url`, …), in the transcript's shape.
        structured: The value itself, for programs. It is not sent to the model.
        metadata: For programs: exit codes, paths, counts. It is not sent to the model.
        request: What a person has to answer before the call can go on: the tool called `suspend`. None: it is over.
    """

    output: str = ""
    is_error: bool = False
    parts: tuple[Part, ...] = ()
    structured: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    request: Request | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a running tool may know about its run. A parameter with this annotation (or named `ctx`) receives it.

    Attributes:
        tool: The tool's name.
        call_id: The call's id, as the model gave it.
        turn_id: The turn's id; random for each turn.
        step: Which reply of the model asked for the call, from 0.
        position: The call's place in that reply, from 0.
        conversation_id: None when the run has no conversation.
        deadline: When the run, or the tool's own `timeout`, ends: seconds on `time.monotonic()`. None: never.
        report: Where `progress` goes. None: nobody listens.
        answer: What a person said to the request that the call suspended with, always with `ok`. None: it did not yet.
    """

    tool: str
    call_id: str = ""
    turn_id: str = ""
    step: int = 0
    position: int = 0
    conversation_id: str | None = None
    deadline: float | None = None
    report: Callable[[str, float | None], None] | None = None
    answer: Answer | None = None

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell whoever watches the run how far the tool is. May be called from any thread.

        Args:
            message: A short text.
            fraction: 0.0 to 1.0. None: unknown.
        """
        if self.report is not None:
            self.report(message, fraction)

    @property
    def idempotency_key(self) -> str:
        """A key for payments and other things that must happen once: the same whenever this very call is repeated."""
        import hashlib  # only few tools ask

        place = (self.conversation_id or "", self.turn_id, str(self.step), str(self.position))
        return hashlib.sha256("\0".join(place).encode("utf-8", "surrogatepass")).hexdigest()[:40]


Execute: TypeAlias = Callable[[JSONObject, ToolContext], Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Tool:
    """Something the model may call, from whatever source. Two tools are the same only if they are the same object.

    Attributes:
        name: What the caller and the transcript call it. Wires that cannot take it get a mapped one.
        description: What the model reads to decide.
        input_schema: JSON Schema of the arguments, an object.
        execute: Runs a call. May be a coroutine function or a plain one (run in a worker thread), and may return
            anything; see `ToolResult` for what the model then gets.
        convert: Checks the arguments and turns them into what `execute` takes; raises `InvalidArguments`. None:
            they are checked against `input_schema` and passed as they are.
        source: `native`, `http`, `builtin`, `skill`, `mcp`, `a2a` or `agent`.
        read_only: It changes nothing: a failed turn that only read leaves no trace.
        exclusive: It never runs at the same time as another call of the same step.
        idempotent: Running it twice is as good as once.
        needs_approval: A person has to agree before it runs.
        timeout: Seconds one call may take. None: as long as the run.
        on_loop: Whether `execute` is a coroutine function; it follows from it.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=_no_arguments)
    execute: Execute
    convert: Callable[[JSONObject], JSONObject] | None = None
    source: str = "native"
    read_only: bool = False
    exclusive: bool = False
    idempotent: bool = False
    needs_approval: bool = False
    timeout: float | None = None
    on_loop: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_loop", inspect.iscoroutinefunction(self.execute))
