"""Conversations in a Redis server, which any number of processes and machines may use at once."""

from __future__ import annotations

import math
import secrets
from base64 import b32encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from toolnexus import _json
from toolnexus.clock import settled
from toolnexus.errors import (
    ConfigurationError,
    ConversationConflict,
    ConversationFenced,
    CorruptConversation,
    StoreError,
)
from toolnexus.stores import redis_scripts as scripts
from toolnexus.stores.backend import (
    NOTHING,
    Grant,
    Head,
    Key,
    Lease,
    Listed,
    LogSlice,
    Owner,
    Page,
    Record,
    Version,
)
from toolnexus.stores.logstore import LogStore
from toolnexus.stores.redis_line import Call, RedisLine, Reply
from toolnexus.stores.words import words

_INTEGERS = 2**53
"""Every client of Redis can hold an integer up to here."""
_BATCH = 100
"""How many conversations are looked at in one round trip."""
_SWEEP = (16, 32)
"""After so many changes of the order, look whether so many conversations are still there."""


class RedisStore(LogStore):
    """Keeps conversations in the Redis server at `url`: `redis://`, `rediss://` or `unix://`.

    Redis confirms a write before it is on disk or on a replica, so how much survives a failure of the server is
    decided by its configuration (`appendonly`, `appendfsync`). It must not evict keys (`maxmemory-policy noeviction`).
    Where a conversation turns out to have lost a part, that is an error, never a shorter history.

    Args:
        url: May hold a user and a password, and options of redis-py, such as `?socket_timeout=3`.
        prefix: What the names of all keys begin with.
        expire_after: Seconds after its last turn until a conversation is removed. One that runs, or waits for a
            person, stays. None: it is kept for ever.
        auto_migrate: Whether the layout may be made or brought up to date. False: it must be there.

    Raises:
        ConfigurationError: An argument cannot be used.
        MissingExtra: redis-py is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "toolnexus",
        expire_after: float | None = None,
        auto_migrate: bool = True,
        scope: str = "",
        lease: float = 30.0,
    ) -> None:
        backend = RedisBackend(url, prefix=prefix, expire_after=expire_after, auto_migrate=auto_migrate)
        super().__init__(backend, scope=scope, lease=lease)


class RedisBackend:
    """A `LogBackend` in Redis. The arguments are those of `RedisStore`.

    Each operation on a conversation is one script, on keys of one hash tag. The list of a scope has another hash tag,
    and is written in the same round trip, after the conversation: if the server fails in between, a new conversation
    is missing in the list, and another has its old place there, until its next turn ends. What a list shows is read
    from the conversations themselves, so one that was deleted or has expired is never shown.
    """

    def __init__(
        self, url: str, *, prefix: str = "toolnexus", expire_after: float | None = None, auto_migrate: bool = True
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise ConfigurationError(f"The prefix {prefix!r} has a brace, which would change how keys are spread.")
        if expire_after is not None and not 0 < expire_after < math.inf:
            raise ConfigurationError(f"expire_after is {expire_after}. Give seconds above 0, or None to keep all.")
        self._prefix = prefix.encode("utf-8", "surrogatepass")
        self._life: int | Literal[""] = "" if expire_after is None else _milliseconds(expire_after)
        self._line = RedisLine(url, layout=self._prefix + b":layout", auto_migrate=auto_migrate)
        self._moves = count(1)

    async def begin(
        self, key: Key, *, owner: Owner, ttl: float, expect: Version, records: Sequence[Record]
    ) -> Grant | None:
        fresh = secrets.randbelow(_INTEGERS - 1) + 1  # not counted: a server that lost everything would begin anew
        arguments = (fresh, owner.token, _bytes(owner.process), _milliseconds(ttl), self._life)
        expected = (expect.incarnation, expect.last)
        call = Call(scripts.BEGIN, self._keys(key), (*arguments, *expected, *records))
        status, *reply = await self._ask(key, call, settles=True)
        if status == b"busy":
            return None
        incarnation, fence, last, newer = reply
        return Grant(
            key=key,
            owner=owner,
            fence=fence,
            version=Version(incarnation=int(incarnation), last=last),
            opened=status == b"ok",
            newer=tuple(newer),
        )

    async def append(
        self, grant: Grant, records: Sequence[Record], *, expect: int, head: Head | None = None, release: bool = False
    ) -> int:
        arguments = (*self._held(grant), expect, int(release), *_shown(head), *records)
        call = Call(scripts.APPEND, self._keys(grant.key), arguments)
        status, last = await self._ask(grant.key, call, settles=True, moves=head is not None)
        if status == b"conflict":
            raise ConversationConflict(grant.key.id, expected=expect, actual=last)
        return last

    async def renew(self, grant: Grant, *, ttl: float) -> Grant:
        call = Call(scripts.RENEW, self._keys(grant.key), (*self._held(grant), _milliseconds(ttl)))
        await self._ask(grant.key, call, settles=True)
        return grant

    async def read(self, key: Key, *, after: Version = NOTHING) -> LogSlice | None:
        call = Call(scripts.READ, self._keys(key), (after.incarnation, after.last))
        status, *reply = await self._ask(key, call)
        if status == b"none":
            return None
        incarnation, last, records, lease = reply
        return LogSlice(
            records=tuple(records),
            version=Version(incarnation=int(incarnation), last=last),
            lease=_lease(*lease) if lease else None,
        )

    async def delete(self, key: Key) -> bool:
        return await settled(self._delete(key))

    async def list(self, scope: str, *, after: str | None, limit: int, query: str | None) -> Page:
        wanted = words(query) if query is not None else []
        limit = max(limit, 0)
        size = _BATCH if wanted else min(limit + 1, _BATCH)
        start = "+inf" if after is None else f"({_read_cursor(after)}"
        found: _Found = []
        total = 0
        while len(found) <= limit:
            [(total, ranked)] = await self._line.run(Call(scripts.PAGE, self._index(scope), (start, size)))
            places = _places(ranked)
            found += await self._live(scope, places, wanted)
            if len(places) < size:
                break
            start = f"({places[-1].rank}"
        page = found[:limit]
        return Page(
            items=tuple(listed for _, listed in page),
            after=str(page[-1][0].rank) if page and len(page) < len(found) else None,
            # What has expired is in the index until somebody looks.
            total=total if not wanted and self._life == "" else None,
        )

    async def aclose(self) -> None:
        await self._line.aclose()

    async def _ask(self, key: Key, call: Call, *, settles: bool = False, moves: bool = False) -> Reply:
        """Run a script on a conversation.

        Args:
            settles: Run to a known outcome when cancelled.
            moves: It becomes the first in the list, if the script does what it is to do.

        Returns:
            What it says of the outcome, and the rest of its reply.
        """
        if not moves:
            [reply] = await self._line.run(call, conversation_id=key.id, settles=settles)
        else:
            move = Call(scripts.MOVE_UP, self._index(key.scope), (_bytes(key.id),))

            def move_back(replies: Sequence[Reply]) -> Call | None:
                (status, *_), (before, rank) = replies
                return None if status == b"ok" else self._back(key.scope, [_Place(_bytes(key.id), rank)], before)

            run = self._line.run(call, move, conversation_id=key.id, settles=settles, then=move_back)
            reply, _ = await run
            if reply[0] == b"ok" and self._life != "" and next(self._moves) % _SWEEP[0] == 0:
                with suppress(StoreError):  # the outcome of the call is known
                    await self._sweep(key.scope)
        match reply[0]:
            case b"fenced":
                raise ConversationFenced(key.id)
            case b"corrupt":
                raise CorruptConversation(
                    f"Redis has lost a part of conversation {key.id!r}, perhaps because it may evict keys "
                    "(maxmemory-policy). Nothing was changed. Restore it from a backup, or delete it.",
                    conversation_id=key.id,
                )
            case b"lost":
                raise StoreError(
                    f"Redis has lost records of conversation {key.id!r} that it had confirmed, as after a failover. "
                    "Ask again to go on from what it has.",
                    conversation_id=key.id,
                )
            case _:
                return reply

    async def _delete(self, key: Key) -> bool:
        look = Call(scripts.RANK, self._index(key.scope), (_bytes(key.id),))
        delete = Call(scripts.DELETE, self._keys(key))
        rank, there = await self._line.run(look, delete, conversation_id=key.id)
        if rank:
            with suppress(StoreError):  # it is not shown any more, and the next list removes its place
                await self._put_back(key.scope, [_Place(_bytes(key.id), rank)])
        return bool(there)

    async def _live(self, scope: str, places: Sequence[_Place], wanted: Sequence[str] = ()) -> _Found:
        """Those conversations in which all these words occur. The places of those that are no more are removed."""
        spaced = [f" {word} " for word in wanted]
        shows = [Call(scripts.SHOW, self._keys_of(scope, place.id), spaced) for place in places]
        found: _Found = []
        gone: list[_Place] = []
        for place, (head, *said) in zip(places, await self._line.run(*shows), strict=True):
            if not head:
                gone.append(place)
                continue
            listed = _listed(place.id, head)
            missing = {word for word, heard in zip(wanted, said, strict=True) if not heard}
            if missing <= {*words(listed.title or "")}:
                found.append((place, listed))
        if gone:
            await self._put_back(scope, gone)
        return found

    async def _sweep(self, scope: str) -> None:
        """Look at some places anywhere in the index, so that it does not grow with what has expired."""
        sample = Call(scripts.SAMPLE, self._index(scope), (secrets.randbelow(_INTEGERS), _SWEEP[1]))
        [ranked] = await self._line.run(sample)
        await self._live(scope, _places(ranked))

    async def _put_back(self, scope: str, places: Iterable[_Place]) -> None:
        """Remove conversations that did not change since from the list."""
        await self._line.run(self._back(scope, places, 0))

    def _back(self, scope: str, places: Iterable[_Place], rank: int) -> Call:
        """What gives conversations that did not change since another place. 0: none."""
        arguments = [each for place in places for each in (place.id, place.rank, rank)]
        return Call(scripts.PUT_BACK, self._index(scope), arguments)

    def _held(self, grant: Grant) -> tuple[str | int, ...]:
        return (grant.version.incarnation, grant.fence, grant.owner.token, self._life)

    def _keys(self, key: Key) -> tuple[bytes, ...]:
        return self._keys_of(key.scope, _bytes(key.id))

    def _keys_of(self, scope: str, id: bytes) -> tuple[bytes, ...]:
        return _conversation(self._prefix, scope, id)

    def _index(self, scope: str) -> tuple[bytes, ...]:
        return _order(self._prefix, scope)


class _Place(NamedTuple):
    """A conversation in the list of its scope. The last changed has the highest rank."""

    id: bytes
    rank: int


_Found: TypeAlias = list[tuple[_Place, Listed]]


def _shown(head: Head | None) -> tuple[bytes | str, ...]:
    """What a list shows, whether the turn waits for a person, and the words to be searched, anew or in addition."""
    if head is None:
        return ("", "0", "", "0")
    shown = _json.dumps([head.title, head.updated, head.messages, head.status, head.preview], "head", nulls=1)
    said = f" {' '.join(words(head.text))} " if head.text else ""
    return (shown, "1" if head.status == "suspended" else "0", said, "1" if head.anew else "0")


def _listed(id: bytes, head: bytes) -> Listed:
    title, updated, messages, status, preview = _json.loads(head)
    return Listed(
        id=id.decode("utf-8", "surrogatepass"),
        title=title,
        updated=updated,
        messages=messages,
        status=status,
        preview=preview,
    )


def _lease(token: bytes, process: bytes, fence: int, left: int) -> Lease:
    return Lease(
        owner=Owner(token=token.decode(), process=process.decode("utf-8", "surrogatepass")),
        fence=fence,
        left=left / 1000,
    )


def _places(ranked: Sequence[bytes]) -> list[_Place]:
    return [_Place(id, int(rank)) for id, rank in zip(ranked[::2], ranked[1::2], strict=True)]


def _read_cursor(after: str) -> int:
    try:
        return int(after)
    except ValueError as error:
        raise ConfigurationError(f"{after!r} is not where a part of a list ended. Give `Page.after`.") from error


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


@lru_cache(maxsize=1024)
def _conversation(prefix: bytes, scope: str, id: bytes) -> tuple[bytes, ...]:
    """The keys of a conversation."""
    # The scope's digest has a fixed length, so that no text of an id can be taken for a part of the scope.
    base = b"%b:{%b}:" % (prefix, _tag(_digest(scope) + id))
    return (base + b"head", base + b"log", base + b"words")


@lru_cache(maxsize=64)
def _order(prefix: bytes, scope: str) -> tuple[bytes, ...]:
    """The keys of a scope's list."""
    base = b"%b:{%b}:" % (prefix, _tag(_bytes(scope)))
    return (base + b"ranks", base + b"rank")


@lru_cache(maxsize=64)
def _digest(scope: str) -> bytes:
    return blake2b(_bytes(scope), digest_size=20).digest()


def _tag(text: bytes) -> bytes:
    return b32encode(blake2b(text, digest_size=20).digest()).lower()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
