from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from acceptor.adapters import Tokenizer
from acceptor.core import CheckpointError
from kit.checkpoints import edit_json

TEXTS = ["Hello, world!", "  two  spaces\tand\na line", "<s>already marked</s>", ""]
TEXTS += ["naïve café, 你好, 👩‍👩‍👧, \u0000"]
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
CORPUS = ["the quick brown fox says hello to the café over and over; 12 + 34 = 46"] * 3


@pytest.fixture(scope="session")
def backend() -> Backend:
    """A byte-level BPE, its two special tokens first, whose post-processor adds nothing."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


@pytest.fixture
def directory(backend: Backend, tmp_path: Path) -> Path:
    """What transformers saves for this tokenizer."""
    PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL_TOKENS).save_pretrained(tmp_path)
    return tmp_path


def assert_same(directory: Path) -> None:
    """Assert the same ids and texts as in transformers."""
    ours, theirs = Tokenizer.load(directory), AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        for special in (True, False):
            token_ids = ours.encode(text, add_special_tokens=special)
            assert token_ids == theirs.encode(text, add_special_tokens=special)
            assert ours.decode(token_ids, skip_special_tokens=special) == theirs.decode(
                token_ids, skip_special_tokens=special
            )
    assert ours.special_tokens == theirs.special_tokens_map
    assert ours.eos_token_ids == (theirs.eos_token_id,)
    assert ours.vocab_size == len(theirs)


def test_without_bos(directory: Path) -> None:
    assert_same(directory)
    assert Tokenizer.load(directory).encode("<s>a")[0] == 0


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": False, "add_eos_token": True}])
def test_the_post_processor_decides_about_bos(
    backend: Backend, directory: Path, flags: dict[str, bool]
) -> None:
    marked = Backend.from_str(backend.to_str())
    marked.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", 0)]
    )
    marked.save(str(directory / "tokenizer.json"))
    edit_json(directory / "tokenizer_config.json", **flags)
    assert_same(directory)
    tokenizer = Tokenizer.load(directory)
    assert tokenizer.encode("hello") == [0, *tokenizer.encode("hello", add_special_tokens=False)]


def test_no_post_processor(directory: Path) -> None:
    edit_json(directory / "tokenizer.json", post_processor=None)
    edit_json(directory / "tokenizer_config.json", add_bos_token=True)
    assert_same(directory)


def test_truncation_and_padding_in_the_file_do_nothing(backend: Backend, directory: Path) -> None:
    cutting = Backend.from_str(backend.to_str())
    cutting.enable_truncation(3)
    cutting.enable_padding(length=64)
    cutting.save(str(directory / "tokenizer.json"))
    assert_same(directory)


def test_special_tokens_spelled_as_objects(directory: Path) -> None:
    bos = {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False}
    edit_json(directory / "tokenizer_config.json", bos_token=bos | {"__type": "AddedToken"})
    assert Tokenizer.load(directory).special_tokens == SPECIAL_TOKENS


def test_a_directory_with_tokenizer_json_alone(directory: Path) -> None:
    (directory / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.load(directory)
    assert (tokenizer.special_tokens, tokenizer.eos_token_ids) == ({}, ())
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a tokenizer, got "),
        (b"{}", "expected a tokenizer, got Model missing"),
        (b"[" * 100_000, "expected a tokenizer, got "),
        (b"\xff\xfe", "expected UTF-8 text, got "),
        (
            b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}',
            "expected a tokenizer, got Token `b` out of vocabulary",
        ),
        (None, "expected a file, got none"),
    ],
)
def test_damaged_tokenizers(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"^.*tokenizer\.json: {message}.*\Z"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bos_token": 3}, r"_config\.json: bos_token: expected a string, got 3"),
        ({"eos_token": "\ud800"}, r"eos_token: expected a string, got \"\\ud800"),
        ({"eos_token": {"text": "x"}}, "eos_token: content: expected a string, got nothing"),
        ({"eos_token": "x" * 999}, "expected the eos_token 'x{299} …, got no such token"),
        ({"eos_token": "<x>"}, r"tokenizer\.json: expected the eos_token '<x>', got no such token"),
    ],
)
def test_bad_tokenizer_configs(directory: Path, config: dict[str, object], message: str) -> None:
    edit_json(directory / "tokenizer_config.json", **config)
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(directory)
