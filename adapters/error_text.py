"""Puts what other libraries and files say into our one-line errors."""

MAX_LENGTH = 300


def one_line(said: object) -> str:
    """What an error or a value says, on one line of bounded length."""
    words = " ".join(str(said).split())
    return words if len(words) <= MAX_LENGTH else words[:MAX_LENGTH] + " …"
