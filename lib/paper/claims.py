"""The claims of the paper's abstract, introduction and four boxed findings, in this order."""

from collections.abc import Mapping

from lib.paper import calibration_claims, estimation_claims
from lib.paper.claim_cases import Claim
from lib.paper.numbers_of_paper import paper_facts

FINDINGS: Mapping[str, str] = paper_facts()["findings"]  # boxed in the paper, each with its claims
GROUPS = ("Abstract", "Introduction", *FINDINGS)
CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for group in GROUPS
    for module in (estimation_claims, calibration_claims)
    for claim in vars(module).values()
    if isinstance(claim, Claim) and claim.group == group
)
