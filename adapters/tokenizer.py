"""Text to token ids and back, through tokenizer.json.

What tokenizer_config.json adds is read as transformers reads it. This module refuses formats other
than tokenizer.json, whose vocabularies would need other libraries.
"""

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from attrs import frozen
from tokenizers.processors import TemplateProcessing

from ..core.errors import CheckpointError
from .detokenizer import Detokenizer
from .error_text import one_line
from .json_object import JsonObject, read_json, read_text

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip


@frozen(eq=False)
class Tokenizer:
    """A tokenizer of a checkpoint directory.

    Attributes:
        file: its tokenizer.json.
        backend: the same, loaded.
        special_tokens: `bos_token`, `eos_token` and the like -> text, those that are set.
    """

    file: Path
    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str]

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Read tokenizer.json, and tokenizer_config.json where there is one.

        Raises:
            CheckpointError: a file is missing or damaged, or names a token that there is not.
        """
        file = directory / TOKENIZER_FILE
        text = read_text(file)
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # noqa: BLE001, the library raises nothing narrower
            raise CheckpointError(f"{file}: expected a tokenizer, got {one_line(error)}") from None
        # As in transformers, one text at a time is neither cut nor padded.
        backend.no_truncation()
        backend.no_padding()
        config = _read_config(directory)
        tokenizer = cls(file, backend, _read_special_tokens(config))
        tokenizer._set_bos_and_eos(config)
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The end-of-text token, if one is set; the model's config may name more."""
        return self._ids("eos_token")

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
        """Token ids of a text.

        Args:
            text: special tokens written in it become those tokens.
            add_special_tokens: put what the tokenizer prescribes around it, such as a BOS; leave it
                out for a rendered chat template, which writes its own.

        Raises:
            CheckpointError: the tokenizer's own patterns fail on this text.
        """
        try:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except BaseException as error:
            # The library's panics, as on a pattern that backtracks forever, are no Exception.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise CheckpointError(
                    f"{self.file}: expected token ids, got {one_line(error)}"
                ) from None
            raise

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def stream(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A decoder for token ids that come one after the other."""
        return Detokenizer(self.backend, skip_special_tokens=skip_special_tokens)

    def _ids(self, name: str) -> tuple[int, ...]:
        text = self.special_tokens.get(name)
        token_id = None if text is None else self.backend.token_to_id(text)
        return () if token_id is None else (token_id,)

    def _set_bos_and_eos(self, config: JsonObject) -> None:
        """Rebuild what surrounds a text when the config says so, or tokenizer.json does not."""
        flags = ("add_bos_token", "add_eos_token")
        if self.backend.post_processor is not None and not any(flag in config for flag in flags):
            return
        bos, eos = (
            self._token(config, flag.removeprefix("add_"))
            if config.flag(flag, default=False)
            else []
            for flag in flags
        )
        template = [token for token, _ in bos] + ["$A"] + [token for token, _ in eos]
        self.backend.post_processor = TemplateProcessing(
            single=template, pair=None, special_tokens=bos + eos
        )

    def _token(self, config: JsonObject, name: str) -> list[tuple[str, int]]:
        """The token and its id; nothing when it is not set, as in transformers."""
        if name not in self.special_tokens:
            return []
        ids = self._ids(name)
        if not ids:
            raise config.error(name, "a token of the vocabulary", self.special_tokens[name])
        return [(self.special_tokens[name], ids[0])]


def _read_config(directory: Path) -> JsonObject:
    path = directory / CONFIG_FILE
    return read_json(path) if path.exists() else JsonObject(str(path), {})


def _read_special_tokens(config: JsonObject) -> dict[str, str]:
    """Each is spelled as its text, or as an object whose `content` is the text."""
    return {
        name: config.section(name).text("content")
        if isinstance(config.value(name), dict)
        else config.text(name)
        for name in SPECIAL_TOKENS
        if name in config
    }
