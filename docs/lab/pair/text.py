"""Turns text files into the bundled pair's training rows, and its tokenizer.

A text is cut at three or more blank lines, and there again after whole paragraphs into sections of
about 8,000 characters. Sections that are more than 3 % digits (indices, tables, reading lists) are
left out. Of each file, sections 10, 30, 50, … are held out, one in twenty.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from attrs import frozen
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.functional import pad

from acceptor.adapters.error_text import one_line
from acceptor.core.errors import InvalidInputError

END_OF_TEXT = "<|endoftext|>"
"""Begins every prompt and ends every section: one token is both BOS and EOS, as in GPT-2."""

END_OF_TEXT_ID = 0

_SECTION_CHARACTERS, _MOST_DIGITS = 8000, 0.03
_HELD_OUT_AT, _HELD_OUT_EVERY = 10, 20
# A line this long was broken by a printer's margin, not by the writer: it is joined to the next.
_WRAPPED_LINE = re.compile(r"(?<=[^\n]{60})\n(?=[^\n\s])")
# Line ends stand apart from punctuation, so that a prompt "ROMEO:" is cut as the texts were.
_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"


@frozen
class Source:
    """One text file, cut and split; every section ends in a blank line."""

    name: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Source":
        """At least one section is held out.

        Raises:
            InvalidInputError: the file cannot be read, or there is nothing to learn from beside it.
        """
        sections = _prose(read_text(path))
        if len(sections) < 2:
            raise InvalidInputError(
                f"{path}: expected text of two sections or more, got {len(sections)}"
            )
        at = min(_HELD_OUT_AT, len(sections) - 1)
        training = [s for i, s in enumerate(sections) if i % _HELD_OUT_EVERY != at]
        return cls(path.name, tuple(training), tuple(sections[at::_HELD_OUT_EVERY]))


def read_text(path: Path) -> str:
    """All of a file.

    Raises:
        InvalidInputError: it is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = f"{path}: expected UTF-8 text, got {one_line(error)}"
        raise InvalidInputError(said) from None


def training_text(path: Path) -> Sequence[str]:
    """The training text; all of a file from which nothing can be held out."""
    text = read_text(path)
    return Source.read(path).training if len(_prose(text)) > 1 else [text]


def _prose(text: str) -> list[str]:
    return [*filter(_is_prose, _sections(text))]


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


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-level BPE of at most `vocab_size` entries, END_OF_TEXT first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, END_OF_TEXT_ID)]
    )
    return tokenizer


@frozen(eq=False)
class TokenStream:
    """Sections end to end, each followed by END_OF_TEXT.

    Attributes:
        tokens: [num_tokens] int64.
        starts: [num_tokens] int64; for each token, where a row that aims at it begins.
    """

    tokens: Tensor
    starts: Tensor

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, sections: Iterable[str], reach: int, device: torch.device
    ) -> "TokenStream":
        """A row begins at the last paragraph at most `reach` tokens back."""
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(list(sections), add_special_tokens=False):
            ids += [*encoding.ids, END_OF_TEXT_ID]
        ends = (i for token, i in tokenizer.get_vocab().items() if token.endswith("ĊĊ"))
        starts = _row_starts(ids, frozenset({END_OF_TEXT_ID, *ends}), reach)
        return cls(torch.tensor(ids, device=device), torch.tensor(starts, device=device))

    def rows(self, num_rows: int, length: int, generator: torch.Generator) -> Tensor:
        """[num_rows, length] tokens: END_OF_TEXT, then text from the start of a paragraph."""
        last = max(len(self.tokens) - length, 1)
        aims = torch.randint(last, (num_rows,), generator=generator)
        offsets = self.starts[aims.to(self.starts.device)]
        inner = torch.arange(length - 1, device=offsets.device)
        return _begun(self.tokens[(offsets[:, None] + inner) % len(self.tokens)])

    def covering_rows(self, length: int) -> Tensor:
        """[num_rows, length] tokens that hold each token once; the last row ends in -1."""
        padding = -len(self.tokens) % (length - 1)
        return _begun(pad(self.tokens, (0, padding), value=-1).view(-1, length - 1))


def _begun(rows: Tensor) -> Tensor:
    return pad(rows, (1, 0), value=END_OF_TEXT_ID)


def _row_starts(ids: Sequence[int], paragraph_ends: frozenset[int], reach: int) -> list[int]:
    starts, paragraph = [], 0
    for index in range(len(ids)):
        if index and ids[index - 1] in paragraph_ends and ids[index] not in paragraph_ends:
            paragraph = index
        starts.append(paragraph if index - paragraph <= reach else index)
    return starts
