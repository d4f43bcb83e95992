FAILS, NOT_JUDGED, FINDINGS, QUANTIFIERS, VERDICTS = "fails", "not judged", {}, {}, {}


def count_kinds(kinds):
    return ""
