CHANCE_MARK = ""


def format_3dp(value, sign=""):
    return f"{value:{sign}.3f}"
