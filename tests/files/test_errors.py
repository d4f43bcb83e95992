"""What an error says: its first line, or at least its class; and a line that fits a terminal."""

from lib.errors import first_line, one_line


def test_the_first_line_of_an_error_is_that_of_its_message():
    assert first_line(KeyError("a key")) == "'a key'"
    assert first_line(ValueError("\n what is wrong\nand where")) == "what is wrong"


def test_an_error_without_a_message_says_its_class():
    assert first_line(MemoryError()) == "MemoryError"


def test_a_long_line_loses_its_middle_and_a_short_one_nothing():
    short, long = "x" * 280, "begins " + "x" * 400 + " ends"
    assert one_line(short) == short
    cut = one_line(long)
    assert len(cut) == 280
    assert cut.startswith("begins x") and cut.endswith("x ends") and " ... " in cut
