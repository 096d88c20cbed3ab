"""A folder to put skills into."""

from __future__ import annotations

from pathlib import Path

import pytest


class Root:
    """A root of skills. `put` writes a file, folders included."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, path: str, content: str | bytes = "") -> Path:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def skill(self, folder: str, *, name: str | None = None, body: str = "Do it.\n") -> Path:
        """A skill as the specification wants it."""
        name = name or folder.rpartition("/")[2]
        return self.put(f"{folder}/SKILL.md", f"---\nname: {name}\ndescription: Does {name}.\n---\n\n{body}")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    path = tmp_path / "skills"
    path.mkdir()
    return Root(path)
