"""Text to token ids and back, through tokenizer.json.

As in transformers, tokenizer.json alone says what is put around a text, such as a BOS.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from attrs import frozen

from ..core.errors import CheckpointError
from .confinement import confinement
from .detokenizer import Detokenizer
from .json_object import read_json, read_text
from .text_settling import stages_of

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip

CHANNEL = "<|channel|>"
"""As gpt-oss writes it before a channel's name."""

MOST_GROWTH = 16
"""How many times as long a decoder's replacements may make a text, all together."""


@frozen(eq=False)
class Tokenizer:
    """A tokenizer of a checkpoint directory.

    Attributes:
        file: its tokenizer.json.
        backend: the same, loaded.
        special_tokens: `bos_token`, `eos_token` and the like -> text, those that are set.
        eos_token_ids: the end-of-text token, if one is set; the model's config may name more.
        place: path, size and time of the file, by which `confinement` knows it.
    """

    file: Path
    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...] = ()
    place: tuple[str, int, int] = ("", 0, 0)

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Read tokenizer.json, and tokenizer_config.json where there is one.

        Raises:
            CheckpointError: a file is missing or damaged, there is no such eos_token, or
                decoding may take any time or memory.
        """
        file = directory / TOKENIZER_FILE
        text, found = read_text(file), file.stat()
        # As the child was told, so that both have the same.
        place = (str(file.resolve()), found.st_size, found.st_mtime_ns)
        reply = confinement.run("load", *place)
        if "error" in reply:
            raise CheckpointError(f"{file}: expected a tokenizer, got {reply['error']}")
        backend = tokenizers.Tokenizer.from_str(text)
        _check_decoder(file, backend)
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
        """Whether special tokens part what is thought from what is answered, as in Harmony."""
        return self.backend.token_to_id(CHANNEL) is not None

    def check_fits(self, model_vocab_size: int) -> None:
        """Refuse a tokenizer that makes ids which the model has no embedding for.

        Raises:
            CheckpointError: its vocabulary exceeds the model's.
        """
        if self.vocab_size > model_vocab_size:
            raise CheckpointError(
                f"{self.file}: expected token ids below the model's vocab_size, "
                f"{model_vocab_size}, got ids up to {self.vocab_size - 1}"
            )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, in a child process; its limits grow with the text.

        Args:
            text: special tokens written in it become those tokens.
            add_special_tokens: put what the tokenizer prescribes around it, such as a BOS; leave it
                out for a rendered chat template, which writes its own.

        Raises:
            CheckpointError: the tokenizer's own patterns fail on this text, or exceed a limit.
        """
        reply = confinement.run("encode", self.place, text, add_special_tokens)
        if "error" in reply:
            raise CheckpointError(f"{self.file}: expected token ids, got {reply['error']}")
        token_ids: list[int] = reply["value"]
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def stream(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A decoder for token ids that come one after the other."""
        return Detokenizer(self.backend, skip_special_tokens=skip_special_tokens)


def _check_decoder(file: Path, backend: tokenizers.Tokenizer) -> None:
    """Texts are decoded in this process, so that time and memory must grow with them alone."""
    growth = 1.0
    for stage in stages_of(backend):
        if stage["type"] == "Replace":
            replaced = stage["pattern"].get("String", "")
            if not replaced:
                raise CheckpointError(
                    f"{file}: expected a decoder that replaces strings, got a pattern or none"
                )
            growth *= max(len(stage["content"]) / len(replaced), 1.0)
    if growth > MOST_GROWTH:
        raise CheckpointError(
            f"{file}: expected a decoder that makes a text at most {MOST_GROWTH} times as long, "
            f"got {growth:.3g}"
        )


def _read_special_tokens(directory: Path) -> dict[str, str]:
    """Each is spelled as its text, or as an object whose `content` is the text."""
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
        raise CheckpointError(f"{file}: expected the eos_token {text!r}, got no such token")
    return (token_id,)
