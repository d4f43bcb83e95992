SCRIPT = ""


def explorer_markup(record):
    return ""


def policy_hash(text):
    return ""
