"""From text files to token rows: sections, the held-out split, the stream that rows are cut from.

Draws no random numbers of its own: the caller's generator decides which rows come out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from attrs import frozen
from tokenizers import Tokenizer
from torch import Tensor

from ...core.errors import InvalidInputError
from .tokenizer import END_OF_TEXT_ID

SPLIT = (
    "A text is cut at three or more blank lines, and there again after whole paragraphs into "
    "sections of about 8,000 characters; sections that are more than 3 % digits (indices, tables, "
    "reading lists) are left out; of each file, sections 10, 30, 50, … are held out, one in twenty."
)

_SECTION_CHARACTERS = 8000
_HELD_OUT_EVERY = 20
_HELD_OUT_AT = 10
_MOST_DIGITS = 0.03
# A line this long was broken by a printer's margin, not by the writer: it is joined to the next.
_WRAPPED_LINE = re.compile(r"(?<=[^\n]{60})\n(?=[^\n\s])")


@frozen
class Source:
    """One text file, cut and split; every section ends in a blank line."""

    name: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]


def read_source(path: Path) -> Source:
    """Read one UTF-8 text and split it by SPLIT's rule; at least one section is held out.

    Raises:
        InvalidInputError: the file is no UTF-8 text, or holds fewer than two sections.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: expected UTF-8 text, got {error.reason}") from None
    sections = [section for section in _sections(text) if _is_prose(section)]
    if len(sections) < 2:
        raise InvalidInputError(f"{path}: expected two sections or more, got {len(sections)}")
    at = min(_HELD_OUT_AT, len(sections) - 1)
    held_out = sections[at::_HELD_OUT_EVERY]
    training = [s for i, s in enumerate(sections) if i % _HELD_OUT_EVERY != at]
    return Source(path.name, tuple(training), tuple(held_out))


def _sections(text: str) -> Iterator[str]:
    for part in re.split(r"\n{4,}", _WRAPPED_LINE.sub(" ", text)):
        section = ""
        for paragraph in filter(str.strip, re.split(r"\n{2,}", part)):
            section += paragraph.strip("\n") + "\n\n"
            if len(section) >= _SECTION_CHARACTERS:
                yield section
                section = ""
        if section:
            yield section


def _is_prose(section: str) -> bool:
    return sum(map(str.isdigit, section)) <= _MOST_DIGITS * len(section)


@frozen(eq=False)
class TokenStream:
    """Sections end to end, each followed by END_OF_TEXT.

    tokens: [num_tokens], int64.
    starts: [num_tokens], int64; for each token, where a row that aims at it begins.
    """

    tokens: Tensor
    starts: Tensor

    def rows(self, num_rows: int, length: int, generator: torch.Generator) -> Tensor:
        """[num_rows, length] tokens: END_OF_TEXT, then text from the start of a paragraph."""
        last = len(self.tokens) - length
        aims = torch.randint(max(last, 1), (num_rows,), generator=generator)
        offsets = self.starts[aims.to(self.starts.device)]
        inner = torch.arange(length - 1, device=offsets.device)
        return _begun(self.tokens[(offsets[:, None] + inner) % len(self.tokens)])

    def covering_rows(self, length: int) -> Tensor:
        """[num_rows, length] tokens that hold each token once; the last row ends in -1."""
        padding = -len(self.tokens) % (length - 1)
        tokens = torch.nn.functional.pad(self.tokens, (0, padding), value=-1)
        return _begun(tokens.view(-1, length - 1))


def _begun(rows: Tensor) -> Tensor:
    return torch.nn.functional.pad(rows, (1, 0), value=END_OF_TEXT_ID)


def encode(
    tokenizer: Tokenizer, sections: Iterable[str], reach: int, device: torch.device
) -> TokenStream:
    """Tokenize sections; a row begins at the last paragraph at most `reach` tokens back."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(list(sections), add_special_tokens=False):
        ids += [*encoding.ids, END_OF_TEXT_ID]
    starts = _row_starts(ids, _paragraph_ends(tokenizer), reach)
    return TokenStream(torch.tensor(ids, device=device), torch.tensor(starts, device=device))


def _paragraph_ends(tokenizer: Tokenizer) -> frozenset[int]:
    ends = (i for token, i in tokenizer.get_vocab().items() if token.endswith("ĊĊ"))
    return frozenset({END_OF_TEXT_ID, *ends})


def _row_starts(ids: Sequence[int], paragraph_ends: frozenset[int], reach: int) -> list[int]:
    starts = []
    paragraph = 0
    for index in range(len(ids)):
        if index and ids[index - 1] in paragraph_ends and ids[index] not in paragraph_ends:
            paragraph = index
        starts.append(paragraph if index - paragraph <= reach else index)
    return starts
