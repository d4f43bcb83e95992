"""The links of an executed notebook, which lies deeper than the one that was run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from lib.paths import ROOT

if TYPE_CHECKING:  # slow to import
    from nbformat import NotebookNode

NOTEBOOKS = ROOT / "notebooks"
# the target of a link in Markdown; addresses and parts of the same page stay as they are
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def lead_links_to_project(nb: "NotebookNode", executed: Path) -> bool:
    """Let the links of a notebook of notebooks/ lead to the same files from where it lies executed.
    Return whether it has any."""
    depth = len(executed.parent.relative_to(ROOT).parts)
    to_root = "../" * depth
    is_changed = False
    for cell in nb.cells:
        if cell.cell_type != "markdown":
            continue
        source = LINK.sub(lambda link: f"]({to_root}{from_root(link[1])}", cell.source)
        is_changed = is_changed or source != cell.source
        cell.source = source
    return is_changed


def from_root(target: str) -> str:
    """Return the path of a link of notebooks/, from the project's root."""
    return str((NOTEBOOKS / target).resolve().relative_to(ROOT))
