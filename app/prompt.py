"""From a text to a request."""

from ..adapters.chat_template import ChatTemplate
from ..core.errors import ConfigError
from .admission import check_text
from .config import Config
from .request import GenerationRequest
from .wiring import Wired


def make_request(prompt: str, config: Config, wired: Wired) -> GenerationRequest:
    """The request that a config makes of a prompt, with a seed.

    Raises:
        ConfigError: a chat is wanted, and the target has no chat template.
        InvalidInputError: there is not a single token in the prompt, or it is no text.
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
    )


def _chat(prompt: str, wired: Wired) -> list[int]:
    template = ChatTemplate.load(wired.directory)
    if template is None:
        raise ConfigError(f"chat: expected a chat template in {wired.directory}, got none")
    messages = [{"role": "user", "content": prompt}]
    text = template.render(messages, wired.tokenizer.special_tokens)
    return wired.tokenizer.encode(text, add_special_tokens=False)
