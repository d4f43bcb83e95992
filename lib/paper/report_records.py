"""What a notebook hands to the report."""

import json
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lib.paper.verdicts import frame_as_html


@dataclass(frozen=True)
class ReportRecords:
    """Records for the report, and a short form for the reader of the notebook."""

    records: pd.DataFrame
    shown: pd.DataFrame = field(repr=False)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        records = json.loads(self.records.to_json(orient="records", double_precision=15))
        return {
            "text/html": frame_as_html(self.shown, na_rep=""),
            "text/plain": self.shown.to_string(),
            "application/json": records,
        }
