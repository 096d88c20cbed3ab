"""What is said to PostgreSQL: the layout of the tables and the statements, one for each operation. Pure.

Each statement is a transaction by itself. It locks the conversation's row by updating it, so the conditions are
checked on the row as the last writer left it, and what it inserts hangs on that update having found the row.
"""
# ruff: noqa: S608 - every value is a parameter; put together are our own words and the quoted name of a schema

from __future__ import annotations

from collections.abc import Sequence

_CHUNK = 200_000
"""Characters of words in one row. A `tsvector` takes up to 1 MB."""

LOOKED_UP = 8
"""Words of a search that are looked up in the index; further ones are looked for in what these leave."""
NEVER = 2**63 - 1
"""A change later than any."""

_FITS = "(c.last = %(last)s AND (c.last = 0 OR c.incarnation = %(incarnation)s))"
"""Whether a conversation stands where the caller expects it."""
_UNTIL = "clock_timestamp() + make_interval(secs => %(ttl)s)"
_BODIES = "unnest(%(bodies)s::bytea[]) WITH ORDINALITY AS b(body, n)"


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
        self.begin = f"""
            WITH taken AS (
                INSERT INTO {to}tn_conversation AS c
                    (key, tenant, scope, id, last, fence, opened, token, process, until)
                VALUES (%(key)s, %(tenant)s, %(scope)s, %(id)s, CASE WHEN %(last)s = 0 THEN %(count)s ELSE 0 END, 1,
                    %(last)s = 0, %(token)s, %(process)s, {_UNTIL})
                ON CONFLICT (key) DO UPDATE SET
                    fence = c.fence + CASE WHEN c.token = %(token)s THEN 0 ELSE 1 END,
                    last = c.last + CASE WHEN {_FITS} THEN %(count)s ELSE 0 END,
                    opened = {_FITS},
                    token = %(token)s,
                    process = %(process)s,
                    until = {_UNTIL}
                WHERE c.token IS NULL OR c.token = %(token)s OR c.until <= clock_timestamp()
                RETURNING incarnation, last, fence, opened
            ), added AS (
                INSERT INTO {to}tn_record (conversation, number, body)
                SELECT incarnation, %(last)s + n, body FROM taken, {_BODIES} WHERE opened
            )
            SELECT incarnation, last, fence, opened FROM taken""".encode()
        self.append = self._append(to, head=False, anew=False)
        self.append_head = self._append(to, head=True, anew=False)
        self.append_anew = self._append(to, head=True, anew=True)
        self.renew = f"""
            UPDATE {to}tn_conversation SET until = {_UNTIL}
            WHERE incarnation = %(incarnation)s AND fence = %(fence)s AND token = %(token)s
            RETURNING 1""".encode()
        self.read = f"""
            SELECT body, incarnation, last, fence, token, process,
                extract(epoch FROM until - clock_timestamp())::float8
            FROM {to}tn_conversation LEFT JOIN {to}tn_record ON conversation = incarnation
                AND number > CASE WHEN incarnation = %(incarnation)s THEN %(last)s ELSE 0 END
            WHERE key = %(key)s
            ORDER BY number""".encode()
        self.look = f"""
            SELECT last, fence, token,
                ARRAY(SELECT body FROM {to}tn_record WHERE conversation = incarnation
                    AND number > %(last)s AND number <= %(last)s + %(count)s ORDER BY number)
            FROM {to}tn_conversation WHERE incarnation = %(incarnation)s""".encode()
        self.delete = f"DELETE FROM {to}tn_conversation WHERE key = %(key)s RETURNING incarnation, last".encode()
        self.delete_rest = f"""
            WITH searched AS (DELETE FROM {to}tn_text WHERE conversation = %(incarnation)s)
            DELETE FROM {to}tn_record WHERE conversation = %(incarnation)s""".encode()

    def list(self, words: int) -> bytes:
        """Conversations, last changed first, in which all `words` parameters `word0`, `word1`, … occur.

        With more than `LOOKED_UP` of them the others are in the array `others`.
        """
        to = self._to
        occur = "".join(
            f"""
                AND (c.title_words @@ %(word{n})s::tsquery OR c.incarnation IN
                    (SELECT conversation FROM {to}tn_text WHERE words @@ %(word{n})s::tsquery))"""
            for n in range(min(words, LOOKED_UP))
        )
        if words > LOOKED_UP:
            occur += f"""
                AND NOT EXISTS (SELECT FROM unnest(%(others)s::text[]) AS other
                    WHERE c.title_words @@ other::tsquery IS NOT TRUE AND NOT EXISTS
                        (SELECT FROM {to}tn_text
                        WHERE conversation = c.incarnation AND words @@ other::tsquery))"""
        return f"""
            SELECT id, title, updated, messages, status, preview, changed
            FROM {to}tn_conversation AS c
            WHERE tenant = %(tenant)s AND last > 0 AND changed < %(before)s{occur}
            ORDER BY changed DESC LIMIT %(limit)s""".encode()

    def layouts(self) -> Sequence[bytes]:
        """What makes each version of the layout from the one before. Version 0 is nothing at all."""
        to = self._in
        # Names of conversations are looked up by their hash: they may be longer than an index takes. A row has room
        # for the next state of itself beside it, so that taking and appending touch no index. One that never had a
        # head has not changed yet, for a list.
        first = f"""
            CREATE TABLE {to}tn_schema (version integer NOT NULL);
            CREATE SEQUENCE {to}tn_number;
            CREATE TABLE {to}tn_conversation (
                incarnation bigint PRIMARY KEY DEFAULT {_next(to)},
                key bytea NOT NULL UNIQUE,
                tenant bytea NOT NULL,
                scope bytea NOT NULL,
                id bytea NOT NULL,
                last bigint NOT NULL,
                fence bigint NOT NULL,
                opened boolean NOT NULL,
                token bytea,
                process bytea,
                until timestamptz,
                changed bigint,
                updated double precision NOT NULL DEFAULT 0,
                messages bigint NOT NULL DEFAULT 0,
                status bytea NOT NULL DEFAULT '',
                title bytea,
                preview bytea NOT NULL DEFAULT '',
                title_words tsvector
            ) WITH (fillfactor = 50);
            CREATE INDEX ON {to}tn_conversation (tenant, changed);
            CREATE TABLE {to}tn_record (
                conversation bigint NOT NULL,
                number bigint NOT NULL,
                body bytea NOT NULL,
                PRIMARY KEY (conversation, number)
            );
            CREATE TABLE {to}tn_text (conversation bigint NOT NULL, words tsvector NOT NULL);
            CREATE INDEX ON {to}tn_text (conversation);
            CREATE INDEX ON {to}tn_text USING gin (words);
            """
        return (first.encode(),)

    @staticmethod
    def _append(to: str, *, head: bool, anew: bool) -> bytes:
        shown = f""",
                    changed = {_next(to)}, updated = %(updated)s,
                    messages = %(messages)s, status = %(status)s, title = %(title)s, preview = %(preview)s,
                    title_words = %(title_words)s::tsvector"""
        forget = f""", forgotten AS (
                DELETE FROM {to}tn_text USING held WHERE conversation = incarnation
            )"""
        search = f""", searched AS (
                INSERT INTO {to}tn_text (conversation, words)
                SELECT incarnation, words::tsvector FROM held, unnest(%(words)s::text[]) AS words
            )"""
        return f"""
            WITH held AS (
                UPDATE {to}tn_conversation SET
                    last = last + %(count)s,
                    token = CASE WHEN %(release)s THEN NULL ELSE token END{shown if head else ""}
                WHERE incarnation = %(incarnation)s AND fence = %(fence)s AND token = %(token)s AND last = %(last)s
                RETURNING incarnation
            ), added AS (
                INSERT INTO {to}tn_record (conversation, number, body)
                SELECT incarnation, %(last)s + n, body FROM held, {_BODIES}
            ){forget if anew else ""}{search if head else ""}
            SELECT 1 FROM held""".encode()


def searchable(words: Sequence[str]) -> list[str]:
    """Words as the text of `tsvector` values, none of which is too long for one."""
    rows: list[list[str]] = []
    room = 0
    for word in words:
        if room < len(word):
            rows.append([])
            room = _CHUNK
        rows[-1].append(word)
        room -= len(word)
    return [" ".join(row) for row in rows]


def _next(to: str) -> str:
    """A number that never came before: of an incarnation, or of a change."""
    return "nextval('{}tn_number')".format(to.replace("'", "''"))
