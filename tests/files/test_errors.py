"""What an error says: its first line, or at least its class."""

from lib.errors import first_line


def test_the_first_line_of_an_error_is_that_of_its_message():
    assert first_line(KeyError("a key")) == "'a key'"
    assert first_line(ValueError("\n what is wrong\nand where")) == "what is wrong"


def test_an_error_without_a_message_says_its_class():
    assert first_line(MemoryError()) == "MemoryError"
