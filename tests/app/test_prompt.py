"""Turning a prompt into a request, and the number of threads that decode it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from acceptor.app.bundled import bundled_pair
from acceptor.app.config import Config, DecodingConfig, ModelsConfig
from acceptor.app.engine.parts import num_bytes
from acceptor.app.prompt import make_request
from acceptor.app.threads import use_threads
from acceptor.app.wiring import Wired, wire
from acceptor.core import InvalidInputError, SamplingParams
from kit.small_families import FAMILIES, random_model

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture
def chatty(tmp_path: Path) -> tuple[Config, Wired]:
    target = shutil.copytree(bundled_pair()[0], tmp_path / "target")
    (target / "chat_template.jinja").write_text(TEMPLATE)
    config = Config(models=ModelsConfig(target=str(target)), decoding=DecodingConfig(chat=True))
    return config, wire(config)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_chat_is_rendered_and_gets_no_second_beginning(chatty: tuple[Config, Wired]) -> None:
    config, wired = chatty
    request = make_request("How are you?", config, wired)
    text = "user: How are you?\nassistant:"
    assert wired.tokenizer.decode(request.prompt_token_ids) == text
    assert list(request.prompt_token_ids) == wired.tokenizer.encode(text)[1:]


def test_a_config_says_whether_outputs_follow_a_grammar() -> None:
    assert DecodingConfig(regex="a").has_grammar
    assert DecodingConfig(json_schema="a.json").has_grammar
    assert not DecodingConfig().has_grammar


def test_a_request_has_what_the_config_says_and_a_seed(chatty: tuple[Config, Wired]) -> None:
    _, wired = chatty
    decoding = DecodingConfig(max_tokens=7, stop=("x",), stop_token_ids=(3,), ignore_eos=True)
    sampling = SamplingParams(temperature=0.5)
    request = make_request("A", Config(decoding=decoding, sampling=sampling), wired)
    assert (request.max_tokens, request.stop, request.stop_token_ids) == (7, ("x",), (3,))
    assert request.ignore_eos
    assert request.params.temperature == 0.5
    assert request.params.seed is not None


HARMONY = "<|channel|>analysis<|message|>Sum<|end|><|start|>assistant<|channel|>final<|message|>4"


def test_channels_are_shown_as_they_come(tmp_path: Path) -> None:
    """In gpt-oss's format; the token that ends the text is not a part of it."""
    marks = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"]
    words = ["analysis", "Sum", "assistant", "final", "4"]
    vocabulary = {word: token_id for token_id, word in enumerate([*words, *marks])}
    backend = Backend(models.WordLevel(vocabulary, "4"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(marks)
    saved = random_model(FAMILIES["gpt-oss"])
    saved.generation_config.eos_token_id = vocabulary["<|return|>"]
    saved.save_pretrained(tmp_path)
    backend.save(str(tmp_path / "tokenizer.json"))
    wired = wire(Config(models=ModelsConfig(target=str(tmp_path))))
    assert wired.decoder.eos_token_ids == {vocabulary["<|return|>"]}
    token_ids, stream = wired.tokenizer.encode(HARMONY), wired.decoder.new_detokenizer()
    shown = [stream.push([token_id]) for token_id in token_ids]
    assert "".join(shown) == HARMONY
    assert shown[:4] == ["<|channel|>", "analysis", "<|message|>", "Sum"]


def test_an_empty_prompt_is_the_beginning_of_a_text(chatty: tuple[Config, Wired]) -> None:
    _, wired = chatty
    assert make_request("", Config(), wired).prompt_token_ids == (0,)


def test_no_token_at_all_is_refused(chatty: tuple[Config, Wired], tmp_path: Path) -> None:
    config, wired = chatty
    (tmp_path / "target" / "chat_template.jinja").write_text("{# nothing #}")
    with pytest.raises(InvalidInputError, match="prompt_token_ids: expected at least one token"):
        make_request("A", config, wired)


@pytest.mark.usefixtures("threads")
def test_a_target_gets_the_threads_that_its_size_is_worth(chatty: tuple[Config, Wired]) -> None:
    bundled = num_bytes(chatty[1].decoder.target)
    for asked, target_bytes, expected in ((3, bundled, 3), (None, bundled, 1), (None, 2**33, 4)):
        torch.set_num_threads(4)
        use_threads(asked, target_bytes)
        assert torch.get_num_threads() == expected
