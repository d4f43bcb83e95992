"""`python docs/benchmarks/graders.py`: what each grader accepts of the 1,319 references of GSMHard
(../shared/data).

An answer a row, made from the reference; a grader a column: how many of the references it counts as
met. docs/configuration.md shows the table.
"""

import json
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal

import pandas as pd

from lib.paths import ROOT
from lib.tasks.grading import GRADERS, grade
from lib.tasks.written_numbers import format_number

CENT = Decimal("0.01")


def to_integer(target: Decimal) -> Decimal:
    return target.to_integral_value(ROUND_HALF_UP)


def main() -> None:
    path = ROOT.parent / "shared" / "data" / "gsmhard" / "gsmhardv2.jsonl"
    integers = []
    others = []
    for line in path.read_text(encoding="utf-8").splitlines():
        target = Decimal(repr(json.loads(line)["target"]))
        if target == target.to_integral_value():
            integers.append(target)
        else:
            others.append(target)
    tried = {
        "integer: itself": (integers, lambda t: t),
        "integer: off by one": (integers, lambda t: t + 1),
        "integer: off by ten": (integers, lambda t: t + 10),
        "integer: off by a hundred": (integers, lambda t: t + 100),
        "no integer: itself": (others, lambda t: t),
        "no integer: to two decimals": (others, lambda t: t.quantize(CENT, ROUND_HALF_UP)),
        "no integer: to an integer": (others, to_integer),
        "no integer: cut to an integer": (others, lambda t: t.to_integral_value(ROUND_FLOOR)),
        "no integer: its rounding, off by one": (others, lambda t: to_integer(t) + 1),
    }
    rows = {}
    for name, (references, answer) in tried.items():
        row = {"of": len(references)}
        for grader in GRADERS:
            row[grader] = 0
            for target in references:
                if grade(format_number(answer(target)), format_number(target), grader):
                    row[grader] += 1
        rows[name] = row
    print(pd.DataFrame(rows).T.to_string())


if __name__ == "__main__":
    main()
