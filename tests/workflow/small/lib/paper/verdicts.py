FINDINGS, QUANTIFIERS, VERDICT_WORDS = {}, {}, dict.fromkeys((None, False), "")
