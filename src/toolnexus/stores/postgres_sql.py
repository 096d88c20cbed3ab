"""What is said to PostgreSQL: the layout of the tables and what is done with them, one call for each operation. Pure.

Each call is a transaction by itself. It locks the conversation's row by updating it, so the conditions are checked on
the row as the last writer left it, and what it inserts hangs on that update having found the row.

What a turn does are functions on the server, made with the tables. The server plans a function once in each of its
sessions, whoever uses that, so nothing has to be prepared. What is said in a turn is kept as it is until somebody
searches (`tn_said`), and moved into the index then (`tn_text`), which is several times as large.
"""
# ruff: noqa: S608 - every value is a parameter; put together are our own words and the quoted name of a schema

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHUNK = 200_000
"""Characters of words in one row. A `tsvector` takes up to 1 MB."""

LOOKED_UP = 8
"""Words of a search that are looked up in the index; further ones are looked for in what these leave."""
NEVER = 2**63 - 1
"""A change later than any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    """A function on the server.

    Attributes:
        takes: Its parameters and their types. In the body an underscore comes before their names.
        gives: What it returns.
        body: PL/pgSQL, in which a name is a column's wherever there is such a column.
    """

    name: str
    takes: Mapping[str, str]
    gives: str
    body: str

    def definition(self, to: str) -> str:
        takes = ", ".join(f"_{name} {kind}" for name, kind in self.takes.items())
        body = _literal(f"#variable_conflict use_column\nBEGIN{self.body}\nEND")
        return f"CREATE OR REPLACE FUNCTION {to}{self.name}({takes}) RETURNS {self.gives} LANGUAGE plpgsql AS {body};"

    def call(self, to: str) -> bytes:
        return f"SELECT * FROM {to}{self.name}({', '.join(f'%({name})s' for name in self.takes)})".encode()


class Statements:
    """The statements for the tables of one schema.

    Args:
        schema: None: whatever the server's `search_path` begins with.
    """

    def __init__(self, schema: str | None) -> None:
        quoted = "" if schema is None else '"' + schema.replace('"', '""') + '"'
        self._in = f"{quoted}." if quoted else ""
        self.schema = quoted or None
        self.version_table = f"{self._in}tn_schema"
        # A % stands for itself where there are no parameters, and has to be doubled where there are.
        to = self._to = self._in.replace("%", "%%")
        self.version = f"SELECT max(version) FROM {self.version_table}".encode()
        self.set_version = f"INSERT INTO {to}tn_schema (version) VALUES (%(version)s)".encode()
        begin, append, append_head, forget = self._functions = _functions(self._in)
        self.begin = begin.call(to)
        self.append = append.call(to)
        self.append_head = append_head.call(to)
        self.renew = f"""
            UPDATE {to}tn_conversation SET until = clock_timestamp() + make_interval(secs => %(ttl)s)
            WHERE incarnation = %(incarnation)s AND fence = %(fence)s AND token = %(token)s
            RETURNING 1""".encode()
        self.read = f"""
            SELECT incarnation, last, fence, token, process,
                extract(epoch FROM until - clock_timestamp())::float8,
                ARRAY(SELECT body FROM {to}tn_record WHERE conversation = c.incarnation
                    AND number > CASE WHEN c.incarnation = %(incarnation)s THEN %(last)s ELSE 0 END ORDER BY number)
            FROM {to}tn_conversation AS c WHERE key = %(key)s""".encode()
        self.look = f"""
            SELECT last, fence, token,
                ARRAY(SELECT body FROM {to}tn_record WHERE conversation = incarnation
                    AND number > %(last)s AND number <= %(last)s + %(count)s ORDER BY number)
            FROM {to}tn_conversation WHERE incarnation = %(incarnation)s""".encode()
        self.delete = f"DELETE FROM {to}tn_conversation WHERE key = %(key)s RETURNING incarnation, last".encode()
        self.forget = forget.call(to)
        self.delete_records = f"DELETE FROM {to}tn_record WHERE conversation = %(incarnation)s".encode()
        # Who searches at the same time takes other rows, and sees each of them on one side or the other.
        self.index = f"""
            WITH taken AS (
                DELETE FROM {to}tn_said WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM {to}tn_said LIMIT %(most)s FOR UPDATE SKIP LOCKED))
                RETURNING conversation, words
            )
            INSERT INTO {to}tn_text (conversation, words)
            SELECT conversation, words::tsvector FROM taken""".encode()

    def list(self, words: int) -> bytes:
        """Conversations, last changed first, in which all `words` parameters `word0`, `word1`, … occur.

        With more than `LOOKED_UP` of them the others are in the array `others`.
        """
        occur = "".join(
            f"""
                AND (c.title_words @@ {_query(word)} OR c.incarnation IN ({self._saying(word)}))"""
            for word in (f"%(word{n})s" for n in range(min(words, LOOKED_UP)))
        )
        if words > LOOKED_UP:
            occur += f"""
                AND NOT EXISTS (SELECT FROM unnest(%(others)s::text[]) AS other
                    WHERE c.title_words @@ {_query("other")} IS NOT TRUE AND NOT EXISTS
                        ({self._saying("other", where="conversation = c.incarnation AND ")}))"""
        return f"""
            SELECT id, title, updated, messages, status, preview, changed
            FROM {self._to}tn_conversation AS c
            WHERE tenant = %(tenant)s AND last > 0 AND changed < %(before)s{occur}
            ORDER BY changed DESC LIMIT %(limit)s""".encode()

    def layouts(self) -> Sequence[bytes]:
        """What makes each version of the layout from the one before. Version 0 is nothing at all."""
        to = self._in
        # Names of conversations are looked up by their hash: they may be longer than an index takes. A row has room
        # for the next state of itself beside it, so that taking and appending touch no index. The server logs of a
        # row what is between the first change and the last, so what changes together stands together. One that never
        # had a head has not changed yet, for a list.
        first = f"""
            CREATE TABLE {to}tn_schema (version integer NOT NULL);
            CREATE SEQUENCE {to}tn_number;
            CREATE TABLE {to}tn_conversation (
                incarnation bigint PRIMARY KEY DEFAULT {_next(to)},
                key bytea NOT NULL UNIQUE,
                tenant bytea NOT NULL,
                scope bytea NOT NULL,
                id bytea NOT NULL,
                process bytea,
                until timestamptz,
                fence bigint NOT NULL,
                opened boolean NOT NULL,
                token bytea,
                last bigint NOT NULL,
                changed bigint,
                updated double precision NOT NULL DEFAULT 0,
                messages bigint NOT NULL DEFAULT 0,
                status bytea NOT NULL DEFAULT '',
                preview bytea NOT NULL DEFAULT '',
                title bytea,
                title_words tsvector
            ) WITH (fillfactor = 50);
            CREATE INDEX ON {to}tn_conversation (tenant, changed);
            CREATE TABLE {to}tn_record (
                conversation bigint NOT NULL,
                number bigint NOT NULL,
                body bytea NOT NULL,
                PRIMARY KEY (conversation, number)
            );
            CREATE TABLE {to}tn_said (conversation bigint NOT NULL, words text NOT NULL);
            CREATE INDEX ON {to}tn_said (conversation);
            CREATE TABLE {to}tn_text (conversation bigint NOT NULL, words tsvector NOT NULL);
            CREATE INDEX ON {to}tn_text (conversation);
            CREATE INDEX ON {to}tn_text USING gin (words);
            """
        return ("\n".join([first, *(function.definition(to) for function in self._functions)]).encode(),)

    def _saying(self, word: str, *, where: str = "") -> str:
        """The numbers of conversations in which a word was said."""
        return f"""
            SELECT conversation FROM {self._to}tn_text WHERE {where}words @@ {_query(word)}
            UNION ALL SELECT conversation FROM {self._to}tn_said
            WHERE {where}strpos(' ' || words || ' ', ' ' || {word} || ' ') > 0"""


def _functions(to: str) -> tuple[_Function, _Function, _Function, _Function]:
    """Begin; append without and with a head; forget what was said."""
    fits = "(c.last = _last AND (c.last = 0 OR c.incarnation = _incarnation))"  # stands where the caller expects it
    until = "clock_timestamp() + make_interval(secs => _ttl)"
    bodies = "unnest(_bodies) WITH ORDINALITY AS b (body, n)"
    begin = _Function(
        name="tn_begin",
        takes={
            "key": "bytea",
            "tenant": "bytea",
            "scope": "bytea",
            "id": "bytea",
            "incarnation": "bigint",
            "last": "bigint",
            "bodies": "bytea[]",
            "token": "bytea",
            "process": "bytea",
            "ttl": "double precision",
        },
        gives="TABLE (incarnation bigint, last bigint, fence bigint, opened boolean)",
        body=f"""
    INSERT INTO {to}tn_conversation AS c (key, tenant, scope, id, last, fence, opened, token, process, until)
    VALUES (_key, _tenant, _scope, _id, CASE WHEN _last = 0 THEN cardinality(_bodies) ELSE 0 END, 1, _last = 0,
        _token, _process, {until})
    ON CONFLICT (key) DO UPDATE SET
        fence = c.fence + CASE WHEN c.token = _token THEN 0 ELSE 1 END,
        last = c.last + CASE WHEN {fits} THEN cardinality(_bodies) ELSE 0 END,
        opened = {fits},
        token = _token,
        process = _process,
        until = {until}
    WHERE c.token IS NULL OR c.token = _token OR c.until <= clock_timestamp()
    RETURNING c.incarnation, c.last, c.fence, c.opened INTO incarnation, last, fence, opened;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF opened THEN
        INSERT INTO {to}tn_record (conversation, number, body) SELECT incarnation, _last + n, body FROM {bodies};
    END IF;
    RETURN NEXT;""",
    )
    held = {
        "incarnation": "bigint",
        "fence": "bigint",
        "token": "bytea",
        "last": "bigint",
        "bodies": "bytea[]",
        "release": "boolean",
    }
    shown = {
        "updated": "double precision",
        "messages": "bigint",
        "status": "bytea",
        "title": "bytea",
        "preview": "bytea",
        "title_words": "text",
    }

    def append(name: str, takes: Mapping[str, str], *, head: str = "", said: str = "") -> _Function:
        return _Function(
            name=name,
            takes=takes,
            gives="boolean",
            body=f"""
    UPDATE {to}tn_conversation SET
        last = last + cardinality(_bodies), token = CASE WHEN _release THEN NULL ELSE token END{head}
    WHERE incarnation = _incarnation AND fence = _fence AND token = _token AND last = _last;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {to}tn_record (conversation, number, body) SELECT _incarnation, _last + n, body FROM {bodies};{said}
    RETURN true;""",
        )

    append_head = append(
        "tn_append_head",
        {**held, **shown, "words": "text", "anew": "boolean"},
        head=f""",
        changed = {_next(to)}, updated = _updated, messages = _messages, status = _status, title = _title,
        preview = _preview, title_words = _title_words::tsvector""",
        said=f"""
    IF _anew THEN
        PERFORM {to}tn_forget(_incarnation);
    END IF;
    INSERT INTO {to}tn_said (conversation, words)
    SELECT _incarnation, said FROM unnest(string_to_array(_words, chr(10))) AS said;""",
    )
    forget = _Function(
        name="tn_forget",
        takes={"incarnation": "bigint"},
        gives="void",
        # In this order: what is moved meanwhile was waited for, and is found where it went.
        body=f"""
    DELETE FROM {to}tn_said WHERE conversation = _incarnation;
    DELETE FROM {to}tn_text WHERE conversation = _incarnation;""",
    )
    return begin, append("tn_append", held), append_head, forget


def searchable(words: Sequence[str]) -> list[str]:
    """Words as the text of `tsvector` values, none of which is too long for one."""
    if len(whole := " ".join(words)) <= _CHUNK:
        return [whole] if words else []
    rows: list[list[str]] = []
    room = 0
    for word in words:
        if room < len(word):
            rows.append([])
            room = _CHUNK
        rows[-1].append(word)
        room -= len(word)
    return [" ".join(row) for row in rows]


def _query(word: str) -> str:
    """A word as what is looked for. Quoted, because it may be of any script."""
    return f"('''' || {word} || '''')::tsquery"


def _next(to: str) -> str:
    """A number that never came before: of an incarnation, or of a change."""
    return f"nextval({_literal(f'{to}tn_number')})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
