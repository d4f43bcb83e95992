"""Tables of words: what a notebook shows, and the records of it that the report reads."""

import json
from dataclasses import dataclass, field

import pandas as pd

# notebooks align cells to the right, where sentences are hard to read
ALIGN_LEFT = ' style="text-align: left"'


@dataclass(frozen=True)
class ReportRecords:
    """A frame of words for the reader of the notebook; `records`, if any, are for the report."""

    records: pd.DataFrame | None = field(repr=False)
    shown: pd.DataFrame

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            page = self.shown.to_html(index=False, na_rep="")
        return page.replace("<td>", f"<td{ALIGN_LEFT}>").replace("<th>", f"<th{ALIGN_LEFT}>")

    def _repr_json_(self) -> list | None:
        if self.records is None:
            return None
        return json.loads(self.records.to_json(orient="records", double_precision=15))
