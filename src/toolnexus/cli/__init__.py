"""The command line. It is built on the public names only, like any other user."""

from __future__ import annotations

import os
import sys

from toolnexus.errors import MissingExtra


def main() -> None:
    """Run the command line and exit the process with the code that `exits` has for what happened."""
    _open_streams()
    try:
        from toolnexus.cli.app import root
    except MissingExtra as error:
        print(error, file=sys.stderr)
        sys.exit(3)  # as `exits` says, which needs no extra but is not worth loading for this
    except KeyboardInterrupt:
        sys.exit(130)
    root(prog_name="toolnexus")


def _open_streams() -> None:
    """Have what a caller closed (`<&-`, `>&-`) read as empty and swallow what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
