"""The text of one output: finds stop strings, and holds text back while it may begin one."""

from collections import deque

from attrs import define, field

from .request import Fragment, TokenKind


@define(eq=False)
class OutputText:
    """Text that grows token by token and is released as soon as it is certain.

    Attributes:
        stop: strings that end the text where the first of them begins.
        text: all text so far, including text that is held back.
    """

    stop: tuple[str, ...] = ()
    text: str = ""
    _num_released: int = 0
    _token_ends: deque[tuple[int, TokenKind]] = field(factory=deque)

    def append(self, text: str, kind: TokenKind) -> bool:
        """Add a token's text. True if a stop string is complete: the text now ends before it."""
        if not text:
            return False
        longest_beginning = max((len(stop) - 1 for stop in self.stop), default=0)
        unsearched = max(0, len(self.text) - longest_beginning)
        self.text += text
        self._token_ends.append((len(self.text), kind))
        found = [at for stop in self.stop if (at := self.text.find(stop, unsearched)) >= 0]
        # The text that is cut off was held back, so none of it has been released.
        self.text = self.text[: min(found, default=len(self.text))]
        return bool(found)

    def release(self, *, ended: bool) -> tuple[Fragment, ...]:
        """The text that became certain since the last call; once it has ended, all the rest."""
        num_held = 0 if ended else max(map(self._num_begun, self.stop), default=0)
        certain = len(self.text) - num_held
        released = []
        while self._num_released < certain:
            token_end, kind = self._token_ends[0]
            end = min(token_end, certain)
            released.append(Fragment(self.text[self._num_released : end], kind))
            self._num_released = end
            if end == token_end:
                self._token_ends.popleft()
        return tuple(released)

    def _num_begun(self, stop: str) -> int:
        """How many characters at the end may begin a stop string; looks for its first one only."""
        at = self.text.find(stop[0], max(0, len(self.text) - len(stop) + 1))
        while at >= 0 and not stop.startswith(self.text[at:]):
            at = self.text.find(stop[0], at + 1)
        return 0 if at < 0 else len(self.text) - at
