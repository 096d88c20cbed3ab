"""The tool `question`: asks the person who is talked to, and lets the run wait for the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from toolnexus.suspension import suspend
from toolnexus.tools import InvalidArguments, JSONObject, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from toolnexus.sources.builtin.workspace import Workspace

_MOST = 10

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "minItems": 1,
            "maxItems": _MOST,
            "items": {
                "type": "object",
                "properties": {
                    "question": {"type": "string", "minLength": 1, "description": "The whole question."},
                    "header": {"type": "string", "description": "What it is about, in a word or two."},
                    "options": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1},
                        "uniqueItems": True,
                        "description": "Answers to choose from. The person may also answer otherwise.",
                    },
                    "multiple": {
                        "type": "boolean",
                        "default": False,
                        "description": "Whether several of the options may be chosen.",
                    },
                },
                "required": ["question"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["questions"],
    "additionalProperties": False,
}


class UnreadableAnswer(Exception):
    """What was answered does not fit what was asked. The text says what does."""


def make(workspace: Workspace) -> Tool:
    """The tool `question`. It suspends with the kind `question` and `data` `{"questions": [...]}`.

    The answer's `data` is `{"answers": [...]}`, one for each question in their order: a text, a list of texts where
    several may be chosen, or None for a question that was skipped. For a single question the text or list will do.
    """
    del workspace
    return Tool(
        name="question",
        description=(
            "Ask the person you talk to, when only they can know or decide. Ask all that you need to know at once. "
            "Give options where you can."
        ),
        input_schema=_SCHEMA,
        execute=_ask,
        source="builtin",
        read_only=True,
    )


async def _ask(args: JSONObject, ctx: ToolContext) -> ToolResult:
    questions: list[JSONObject] = args["questions"]
    for position, question in enumerate(questions):
        if question.get("multiple") and not question.get("options"):
            raise InvalidArguments.listing([(["questions", position, "options"], "with multiple, give options")])
    if ctx.answer is None:
        suspend("question", "\n\n".join(map(_shown, questions)), data={"questions": questions})
    answers = _read(ctx.answer.get("data"), questions)
    lines = [f"{each['question']}\n{_told(answer)}" for each, answer in zip(questions, answers, strict=True)]
    return ToolResult(output="\n\n".join(lines), structured=answers, metadata={"answers": answers})


def _shown(question: JSONObject) -> str:
    """A question as plain text, for whoever shows no more than that."""
    header = f"{question['header']}: " if question.get("header") else ""
    several = " (several may be chosen)" if question.get("multiple") else ""
    return "\n".join(
        [f"{header}{question['question']}{several}", *(f"- {each}" for each in question.get("options", ()))]
    )


def _told(answer: list[str] | None) -> str:
    return "(skipped)" if answer is None else "\n".join(f"- {each}" for each in answer)


def _read(data: Any, questions: list[JSONObject]) -> list[list[str] | None]:
    """What was answered to each question. None: nothing.

    Raises:
        UnreadableAnswer: It is something else.
    """
    if isinstance(data, Mapping):
        data = cast("Mapping[str, Any]", data).get("answers")
    if data is None or isinstance(data, str) or (len(questions) == 1 and _texts(data)):
        data = [data]
    if not isinstance(data, list) or len(cast("list[Any]", data)) != len(questions):
        raise UnreadableAnswer(
            f"The answer has to be {{'answers': [...]}} with {len(questions)} items, one a question."
        )
    answers = enumerate(cast("list[Any]", data))
    return [_one(answer, at + 1, several=bool(questions[at].get("multiple"))) for at, answer in answers]


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


def _one(answer: Any, number: int, *, several: bool) -> list[str] | None:
    if answer is None or isinstance(answer, str):
        return [answer] if answer else None
    if not _texts(answer):
        raise UnreadableAnswer(f"The answer to question {number} has to be a text, a list of texts, or None.")
    if len(answer) > 1 and not several:
        raise UnreadableAnswer(f"The answer to question {number} has to be one text: only one could be chosen.")
    return answer or None
