def said(text):
    return " ".join(text)
