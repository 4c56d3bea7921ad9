"""Turns a text into a request."""

from pathlib import Path

from ..adapters.chat_template import ChatTemplate
from ..adapters.error_text import read_named
from ..core import ConfigError
from .config import Config, DecodingConfig
from .request import GenerationRequest, check_request, check_text
from .token_masks import NewTokenMasks
from .wiring import Wired


def make_request(prompt: str, config: Config, wired: Wired) -> GenerationRequest:
    """Make a request from a prompt and a config, with a seed.

    Raises:
        ConfigError: chat is set, and the target has no chat template; or a schema cannot be read.
        InvalidInputError: the prompt has no token or too many, or is not valid text; a biased token
            is unknown; or a grammar is invalid.
        UnavailableError: xgrammar is needed and missing.
    """
    check_text(prompt)
    decoding = config.decoding
    request = GenerationRequest(
        prompt_token_ids=_chat(prompt, wired) if decoding.chat else wired.tokenizer.encode(prompt),
        params=config.sampling.with_seed(),
        max_tokens=decoding.max_tokens,
        stop=decoding.stop,
        stop_token_ids=decoding.stop_token_ids,
        ignore_eos=decoding.ignore_eos,
        new_masks=_new_masks(decoding, wired),
    )
    target = wired.decoder.target
    check_request(request, target, target.max_model_len)
    return request


def _new_masks(wanted: DecodingConfig, wired: Wired) -> NewTokenMasks | None:
    if wanted.regex is not None:
        return wired.grammars(wanted.stop_token_ids).regex(wanted.regex)
    if wanted.json_schema is not None:
        grammars = wired.grammars(wanted.stop_token_ids)
        return grammars.json_schema(read_named(Path(wanted.json_schema), "a UTF-8 text file"))
    return None


def _chat(prompt: str, wired: Wired) -> list[int]:
    template = ChatTemplate.load(wired.directory)
    if template is None:
        raise ConfigError(f"chat: expected a chat template in {wired.directory}, got none")
    text = template.render([{"role": "user", "content": prompt}], wired.tokenizer.special_tokens)
    return wired.tokenizer.encode(text, add_special_tokens=False)
