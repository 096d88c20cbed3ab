"""Reading everything that is kept, to see whether it can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolnexus.cli import exits
from toolnexus.cli.progress import Bar
from toolnexus.cli.render import Lines
from toolnexus.cli.stores import everything, opened, unfolded, unknown

if TYPE_CHECKING:
    from toolnexus.cli.render import Notes


async def check(url: str | None, conversation_ids: Sequence[str], notes: Notes) -> int:
    """Read conversations, or all of them, and write a line for everything that is wrong with one."""
    out = Lines()
    checked = wrong = 0
    async with opened(url) as store:
        missing = [each for each in conversation_ids if await unfolded(store, each) is None]
        if missing:
            return await unknown(store, missing, notes)
        total = len(conversation_ids) or (await store.list(limit=1)).total
        with Bar("checking", total) as bar:
            ids = conversation_ids or [each.id async for each in everything(store)]
            for conversation_id in ids:
                problems = await store.check(conversation_id)
                for problem in problems:
                    out.line(f"{conversation_id}\t{problem}", style="red")
                wrong += bool(problems)
                checked += 1
                bar.to(checked)
    out.close()
    notes.line(f"{checked} checked, {wrong or 'nothing'} wrong.", style="red" if wrong else "dim")
    return exits.STORE if wrong else exits.DONE
