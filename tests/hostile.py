"""Thirty words that a label, title, question or response may hold, and that are to stay words."""

import json
from pathlib import Path

STRINGS = json.loads(Path(__file__).with_suffix(".json").read_text())
