"""`python -m toolnexus`: the command line."""

from __future__ import annotations

from toolnexus.cli import main

if __name__ == "__main__":
    main()
