"""Nouns: plain text.

Texts come from exceptions and files that nobody vouches for. What is printed, stored or exported of
them must not steer a terminal or end a line.
"""


def plain(text: str) -> str:
    """Return one printable line: line breaks, escape codes and lone surrogates as escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
