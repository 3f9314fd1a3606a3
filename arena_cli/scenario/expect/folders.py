"""Where the files are found that checks name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import bounds


class Folders(NamedTuple):
    """The workspace, and the scenario's file, where there is one: files may lie beside it.

    With `anywhere` they may lie outside of both.
    """

    workspace: Path
    scenario: Path | None = None
    anywhere: bool = False

    def located(self, name: str) -> Path | None:
        """The file of that name: below the workspace, else beside the scenario's file.

        Raises OutsideError.
        """
        return bounds.locate(
            name,
            self._folders(),
            root=self.workspace,
            scenario=self.scenario,
            anywhere=self.anywhere,
        )

    def shown(self, path: Path) -> str:
        """The path as the user is shown it."""
        root = self.workspace.resolve()
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()

    @property
    def mend(self) -> str:
        """What to do where there is no such file."""
        return f"paths start from {self.workspace}, or from the folder of this file"

    def _folders(self) -> list[Path]:
        return [self.workspace, *([self.scenario.parent] if self.scenario else [])]
