TEMPLATE, WORKER = ".html.jinja", "worker.py"  # beside it


def count(text, bins):
    return {"letters": len(text), "bins": bins}
