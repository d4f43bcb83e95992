"""The paper's findings (findings.yaml): the notebooks that their claims use, and what the report
shows with each.
"""

from pathlib import Path

from lib.files import read_yaml

FINDINGS = read_yaml(Path(__file__).with_name("findings.yaml"))
NEEDS = {name.removeprefix("Finding "): row["notebooks"] for name, row in FINDINGS.items()}
EXHIBITS = {name: row["exhibits"] for name, row in FINDINGS.items()}
