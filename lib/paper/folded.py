"""What is long behind one line, which a click opens: a frame that a picture was drawn from."""

from dataclasses import dataclass, field
from html import escape
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Folded:
    """A frame, and the words on its fold."""

    frame: pd.DataFrame = field(repr=False)
    title: str = "the numbers"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        summary = f"<summary>{escape(self.title)} ({len(self.frame)} rows)</summary>"
        with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
            page = f"<details>{summary}{self.frame.to_html()}</details>"
        return {"text/html": page, "text/plain": self.frame.to_string()}
