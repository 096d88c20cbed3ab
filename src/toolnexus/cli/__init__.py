"""The command line. It is built on the public names only, like any other user."""

from __future__ import annotations

import sys

from toolnexus.errors import MissingExtra


def main() -> None:
    """Run the command line and exit the process with the code that `exits` has for what happened."""
    try:
        from toolnexus.cli.app import root
    except MissingExtra as error:
        print(error, file=sys.stderr)
        sys.exit(3)  # as `exits` says, which needs no extra but is not worth loading for this
    root(prog_name="toolnexus")
