"""Tortures stores, says what was done and what was found, and exits with 1 if anything was.

With `--long` it takes some minutes for each store.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence

from toolnexus.testing.torture import SCENARIOS, scenarios, torture


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m toolnexus.testing.torture", description=__doc__)
    parser.add_argument("urls", metavar="URL", nargs="+", help="a store, such as sqlite:////tmp/torture.db")
    parser.add_argument("--long", action="store_true", help="take minutes rather than seconds")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="choose by another seed")
    parser.add_argument("--only", action="append", choices=[*SCENARIOS], metavar="NAME", help="this scenario alone")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)  # stores warn of what we do to them

    findings = 0
    for url in options.urls:
        kind, _, where = url.partition("?")[0].partition("://")  # options and user may be secret
        print(f"{kind}://{where.rpartition('@')[2]}, seed {options.seed}", flush=True)
        for name in scenarios(url):
            if options.only and name not in options.only:
                continue
            began = time.monotonic()
            outcome = asyncio.run(torture(url, name, long=options.long, seed=options.seed))
            found = f"{len(outcome.findings)} FOUND" if outcome.findings else "nothing found"
            print(f"  {name:8} {outcome.did}; {time.monotonic() - began:.1f} s: {found}", flush=True)
            for finding in outcome.findings:
                print(f"    {finding}", flush=True)
            findings += len(outcome.findings)
    print(f"{findings} found." if findings else "Nothing was found.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
