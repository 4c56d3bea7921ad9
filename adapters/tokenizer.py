"""Converts text to token ids and back, by tokenizer.json.

As in transformers, tokenizer.json alone decides what is put around a text, such as a BOS.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from attrs import frozen

from ..core.errors import CheckpointError
from .confinement import confinement
from .detokenizer import Detokenizer, decode, stages_of
from .error_text import one_line, unfit
from .json_object import read_json, read_text

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip

CHANNEL = "<|channel|>"
"""The token that gpt-oss writes before a channel's name."""

MAX_DECODER_LENGTH = 2048
"""In bytes of JSON: each step, and each string that it looks for, costs time per token."""
MAX_TOKEN_TEXT = 4096
"""The most characters that a decoder may make of one token."""
REPLACED = {"Replace": "pattern", "BPEDecoder": "suffix", "CTC": "word_delimiter_token"}
"""Steps of a decoder -> the field with the text that they replace, by default with a space."""


@frozen(eq=False)
class Tokenizer:
    """A tokenizer of a checkpoint directory.

    Attributes:
        file: its tokenizer.json.
        special_tokens: `bos_token`, `eos_token` and the like -> text, where set.
        eos_token_ids: the end-of-text token, if one is set; the model's config may name more.
        place: path, size and time of the file, which identify it to `confinement`.
    """

    file: Path
    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...] = ()
    place: tuple[str, int, int] = ("", 0, 0)

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Read tokenizer.json, and tokenizer_config.json if there is one.

        Raises:
            CheckpointError: a file is missing or damaged, there is no such eos_token, or
                decoding may take any time or memory.
        """
        file = directory / TOKENIZER_FILE
        text, found = read_text(file), file.stat()
        # The path that the child gets, too, so that both load the same file.
        place = (str(file.resolve()), found.st_size, found.st_mtime_ns)
        reply = confinement.run("load", *place)
        if "error" in reply:
            raise unfit(file, "a tokenizer", reply["error"])
        backend = tokenizers.Tokenizer.from_str(text)
        if misfit := _misfit_of_decoder(backend):
            raise CheckpointError(f"{file}: expected {misfit}")
        # As in transformers, one text at a time is neither cut nor padded.
        backend.no_truncation()
        backend.no_padding()
        special_tokens = _read_special_tokens(directory)
        eos_token_ids = _find_eos(file, backend, special_tokens)
        return cls(file, backend, special_tokens, eos_token_ids, place)

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return max(self.vocabulary.values(), default=-1) + 1

    @property
    def vocabulary(self) -> dict[str, int]:
        """Token -> id."""
        return self.backend.get_vocab(with_added_tokens=True)

    @property
    def unknown_id(self) -> int:
        """The unk_token's id; 0 without one."""
        return self.backend.token_to_id(self.special_tokens.get("unk_token", "")) or 0

    @property
    def has_channels(self) -> bool:
        """Whether special tokens separate thoughts from answers, as in Harmony."""
        return self.backend.token_to_id(CHANNEL) is not None

    def check_fits(self, model_vocab_size: int) -> None:
        """Check that the model has an embedding for every id.

        Raises:
            CheckpointError: its vocabulary exceeds the model's.
        """
        if self.vocab_size > model_vocab_size:
            expected = f"token ids below the model's vocab_size, {model_vocab_size}"
            raise unfit(self.file, expected, f"ids up to {self.vocab_size - 1}")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Encode a text in a child process, whose limits grow with the text.

        Args:
            text: special tokens written in it become those tokens.
            add_special_tokens: add the tokenizer's own, such as a BOS; not for a rendered chat
                template, which writes its own.

        Raises:
            CheckpointError: the tokenizer's own patterns fail on this text, or exceed a limit.
        """
        reply = confinement.run("encode", self.place, text, add_special_tokens)
        if "error" in reply:
            raise unfit(self.file, "token ids", reply["error"])
        token_ids: list[int] = reply["value"]
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD."""
        return decode(self.backend, token_ids, skip_special_tokens=skip_special_tokens)

    def stream(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A decoder for a stream of token ids."""
        return Detokenizer(self.backend, skip_special_tokens=skip_special_tokens)


def _misfit_of_decoder(backend: tokenizers.Tokenizer) -> str:
    """Why a decoder may take unbounded time or memory, or panic: it runs in this process."""
    length = 0 if backend.decoder is None else len(backend.decoder.__getstate__())
    if length > MAX_DECODER_LENGTH:
        return f"a decoder of at most {MAX_DECODER_LENGTH} bytes, got {length}"
    growth = 1.0
    for stage in stages_of(backend):
        # The library panics on a text without such an end.
        if stop := stage.get("stop"):
            return f"a decoder that strips no ends, got one that strips {stop}"
        if stage["type"] in REPLACED:
            replaced = stage[REPLACED[stage["type"]]]
            replaced = replaced if isinstance(replaced, str) else replaced.get("String", "")
            if not replaced:
                return "a decoder that replaces strings, got a pattern or none"
            growth *= max(len(stage.get("content", " ")) / len(replaced), 1.0)
    longest = max(map(len, backend.get_vocab()), default=0)
    if longest * growth > MAX_TOKEN_TEXT:
        return (
            f"tokens that say at most {MAX_TOKEN_TEXT} characters, got one of {longest} and a "
            f"decoder that makes a text {growth:.3g} times as long"
        )
    return ""


def _read_special_tokens(directory: Path) -> dict[str, str]:
    """Read special tokens: each is a text, or an object whose `content` is the text."""
    path = directory / CONFIG_FILE
    if not os.path.lexists(path):
        return {}
    config = read_json(path)
    return {
        name: config.section(name).text("content")
        if isinstance(config.value(name), dict)
        else config.text(name)
        for name in SPECIAL_TOKENS
        if name in config
    }


def _find_eos(
    file: Path, backend: tokenizers.Tokenizer, special_tokens: dict[str, str]
) -> tuple[int, ...]:
    if "eos_token" not in special_tokens:
        return ()
    text = special_tokens["eos_token"]
    token_id = backend.token_to_id(text)
    if token_id is None:
        raise unfit(file, f"the eos_token {one_line(repr(text))}", "no such token")
    return (token_id,)
