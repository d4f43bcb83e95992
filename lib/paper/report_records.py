"""Tables of words in a notebook, and the records that it hands to the report."""

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

ALIGN_LEFT = ' style="text-align: left"'  # notebooks align cells to the right, where sentences are hard to read


@dataclass(frozen=True)
class ReportRecords:
    """A frame of words for the reader of the notebook, with a line `below`; `records`, if any, are for the report."""

    records: pd.DataFrame | None
    shown: pd.DataFrame
    below: str = ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        with pd.option_context("display.max_colwidth", None):
            page = self.shown.to_html(index=False, na_rep="")
        page = page.replace("<td>", f"<td{ALIGN_LEFT}>").replace("<th>", f"<th{ALIGN_LEFT}>")
        below = f"<p>{self.below}</p>" if self.below else ""
        bundle = {"text/html": page + below, "text/plain": f"{self.shown.to_string()}\n{self.below}".strip()}
        if self.records is None:
            return bundle
        return bundle | {"application/json": json.loads(self.records.to_json(orient="records", double_precision=15))}
