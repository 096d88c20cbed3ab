"""What one run has come to so far: its transcript, its replies and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolnexus.errors import ProviderError, ToolnexusError
from toolnexus.events import CallRecord, Limit, RunResult, Status, Step, Usage

if TYPE_CHECKING:
    from toolnexus.dialects import Reply
    from toolnexus.messages import Message, ToolMessage
    from toolnexus.suspension import Request


class Tally:
    """Grows with the run; `result` may be asked for at any moment, also after a failure.

    Attributes:
        transcript: History, prompt, and what this run added. One list object, appended to and never changed inside.
    """

    def __init__(self, transcript: list[Message], *, turn_id: str, conversation_id: str | None) -> None:
        self.transcript = transcript
        self._turn_id = turn_id
        self._conversation_id = conversation_id
        self._replies: list[tuple[Reply, list[CallRecord]]] = []
        self._rejected: list[Reply] = []
        self._reopened: list[CallRecord] = []  # calls of a reply of an earlier run
        self._shown: list[str] = []  # of the reply that is not complete yet
        self._wasted: Usage | None = None  # of a reply that the provider threw away

    def show(self, text: str) -> None:
        """Note text of a reply that is still coming."""
        self._shown.append(text)

    @property
    def unfinished_text(self) -> str:
        """What was shown of a reply that never got complete."""
        return "".join(self._shown)

    def reply(self, reply: Reply) -> None:
        self._shown.clear()
        self._replies.append((reply, []))
        self.transcript.append(reply.message)

    def reject(self) -> None:
        """Take the last reply out of the transcript. That it was made, and paid for, stays."""
        self.transcript.pop()
        self._rejected.append(self._replies[-1][0])

    def settle(self, records: list[CallRecord], messages: list[ToolMessage]) -> None:
        """Keep what came of the last reply's calls, in call order."""
        outcomes = self._replies[-1][1] if self._replies else self._reopened
        outcomes[:] = records
        self.transcript += messages

    @property
    def started(self) -> bool:
        """Whether the model has said anything yet, or a call ended."""
        return bool(self._replies or self._shown or self._reopened)

    def explain(self, failure: BaseException) -> None:
        """Let an error of ours carry the result so far, if there is anything and it carries none."""
        if not isinstance(failure, ToolnexusError) or failure.partial is not None:
            return
        if isinstance(failure, ProviderError):
            self._wasted = failure.usage
        if self.started or self._wasted is not None:
            failure.partial = self.result("failed")

    def result(
        self, status: Status, limit: Limit | None = None, *, pending: tuple[Request, ...] = (), output: Any = None
    ) -> RunResult:
        last = self._replies[-1][0] if self._replies else None
        return RunResult(
            text=self.text,
            output=output,
            reasoning=last.reasoning if last else "",
            status=status,
            finish_reason=last.finish_reason if last else None,
            limit=limit,
            pending=pending,
            tool_calls=(*self._reopened, *(record for _, records in self._replies for record in records)),
            steps=tuple(
                Step(
                    text=reply.text,
                    reasoning=reply.reasoning,
                    finish_reason=reply.finish_reason,
                    usage=reply.usage,
                    model=reply.model,
                    host=reply.message["origin"]["host"] if "origin" in reply.message else "",
                    calls=tuple(records),
                    rejected=any(reply is other for other in self._rejected),
                )
                for reply, records in self._replies
            ),
            usage=self._usage(),
            model=last.model if last else "",
            conversation_id=self._conversation_id,
            turn_id=self._turn_id,
            transcript=self.transcript,
        )

    @property
    def text(self) -> str:
        """The last reply's text; replies that the provider paused belong to the one that goes on from them."""
        said = [self.unfinished_text] if self._shown else []
        for reply, _ in reversed(self._replies):
            if said and not reply.continues:
                break
            said.append(reply.text)
        return "".join(reversed(said))

    def _usage(self) -> Usage | None:
        told = (*(reply.usage for reply, _ in self._replies), self._wasted)
        known = [usage for usage in told if usage is not None]
        return sum(known[1:], known[0]) if known else None
