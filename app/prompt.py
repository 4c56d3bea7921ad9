"""Turns a text into a request."""

from pathlib import Path

from ..adapters.chat_template import ChatTemplate
from ..adapters.error_text import read_named
from ..core import ConfigError
from .config import Config
from .request import GenerationRequest, check_text
from .token_masks import NewTokenMasks
from .wiring import Wired


def make_request(prompt: str, config: Config, wired: Wired) -> GenerationRequest:
    """Make a request from a prompt and a config, with a seed.

    Raises:
        ConfigError: chat is set, and the target has no chat template; or a schema cannot be read.
        InvalidInputError: the prompt has no token, or is not valid text; or a grammar is invalid.
        UnavailableError: xgrammar is needed and missing.
    """
    check_text(prompt)
    decoding = config.decoding
    return GenerationRequest(
        prompt_token_ids=_chat(prompt, wired) if decoding.chat else wired.tokenizer.encode(prompt),
        params=config.sampling.with_seed(),
        max_tokens=decoding.max_tokens,
        stop=decoding.stop,
        stop_token_ids=decoding.stop_token_ids,
        ignore_eos=decoding.ignore_eos,
        new_masks=new_masks(config, wired) if decoding.has_grammar else None,
    )


def new_masks(config: Config, wired: Wired) -> NewTokenMasks:
    """Returns a function that makes the masks of the config's grammar; raises as `make_request`."""
    wanted = config.decoding
    grammars = wired.grammars(wanted.stop_token_ids)
    if wanted.regex is not None:
        return grammars.regex(wanted.regex)
    assert wanted.json_schema is not None
    return grammars.json_schema(read_named(Path(wanted.json_schema), "a UTF-8 text file"))


def _chat(prompt: str, wired: Wired) -> list[int]:
    template = ChatTemplate.load(wired.directory)
    if template is None:
        raise ConfigError(f"chat: expected a chat template in {wired.directory}, got none")
    messages = [{"role": "user", "content": prompt}]
    text = template.render(messages, wired.tokenizer.special_tokens)
    return wired.tokenizer.encode(text, add_special_tokens=False)
