"""Puts what other libraries and files say into our one-line errors."""

MAX_LENGTH = 300


def ends_program(error: BaseException) -> bool:
    """Whether it asks the program to end, so that nobody may keep it for a stranger's mistake."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def one_line(said: object) -> str:
    """What an error or a value says, on one line of bounded length."""
    if isinstance(said, OSError) and said.strerror:
        # The number and the path would say nothing new.
        said = said.strerror
    try:
        words = " ".join(str(said).split())
    except Exception:  # noqa: BLE001, a stranger's error may fail even at that
        words = type(said).__name__
    return words if len(words) <= MAX_LENGTH else words[:MAX_LENGTH] + " …"
