from lib import delta  # noqa: F401
