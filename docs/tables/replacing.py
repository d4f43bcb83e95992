"""The text of a page with one of its tables made again."""


def replace_table(text: str, begin: str, table: str) -> str:
    """Return a page with the table that follows the mark `begin`, up to the next blank line,
    replaced."""
    before, mark, rest = text.partition(begin)
    return before + mark + table + rest[rest.index("\n\n") :]
