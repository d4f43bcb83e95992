"""The figures that are worked out from the paper's printed numbers alone, by the claims' own predicates:
`python tests/benchmarks/claims.py` prints each claim with its verdict, and the cases behind some of them."""

from lib.paper import reference
from lib.paper.verdicts import VERDICT_WORDS, judge_all


def figures(verdicts):
    """What no count says: the figures behind it, by name."""
    lower = verdicts["IsotonicBelowTemperature"].rows
    by_estimator = {name: f"{part.agrees.sum()} of {len(part)}" for name, part in lower.groupby("estimator")}
    apart = verdicts["InSituComparable"].rows.eval("p_true_insitu - p_true")
    return {
        "isotonic below temperature or Platt, by estimator": by_estimator,
        "in situ less standard P(True)": f"mean {apart.mean():+.3f}, worst {apart.max():+.3f}",
        "token reduction": f"{verdicts['TokenReduction'].rows.mean_reduction[0]:.2f}%",
        "intervals of MCE and ECE": verdicts["IntervalsAsymmetric"].said,
        "worsened by isotonic regression": f"{(verdicts['IsotonicReduces'].rows.relative < 0).sum()} cells",
    }


if __name__ == "__main__":
    verdicts = judge_all(reference.published())
    for name, verdict in verdicts.items():
        said = verdict.said or verdict.reason or "no number printed"
        print(f"{verdict.claim.group:13}{name:26}{VERDICT_WORDS[verdict.held]:23}{said}")
    for name, value in figures(verdicts).items():
        print(f"{name}: {value}")
