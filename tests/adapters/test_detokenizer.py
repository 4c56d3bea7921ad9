"""For any ids, streamed text equals decoding all at once, and is never taken back."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import define
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import Decoder

from acceptor.adapters import Tokenizer
from acceptor.adapters.detokenizer import Detokenizer

SPECIAL_TOKENS = ["<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["a", "▁", "▁b", "▁▁", "é", "\ufffd", "a▁b", " ", "##", "##c", ".", "'s", "n't", "x</w>"]
REPLACE = decoders.Replace("▁", " ")


def backend_of(tokens: Sequence[str], decoder: Decoder | None) -> Backend:
    """A tokenizer of numbered tokens, followed by two special ones and an added one."""
    backend = Backend(models.WordLevel({token: i for i, token in enumerate(tokens)}, tokens[0]))
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(SPECIAL_TOKENS)
    backend.add_tokens([AddedToken("é ü", special=False)])
    return backend


def id_of(backend: Backend, token: str) -> int:
    """The token's id; beyond all ids if there is no such token."""
    token_id = backend.token_to_id(token)
    return 10**6 if token_id is None else token_id


def sequence(*stages: Decoder) -> Decoder:
    return decoders.Sequence(list(stages))


ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTE_LEVEL = [*ALPHABET, "Ġthe", "Ã©", "ðŁ", "ĳĭ", "ï¿½"]
FALLBACK = [*BYTES, *WORDS]
STRIP = decoders.Strip(" ", 1, 0)
BACKENDS = {
    "byte level": backend_of(BYTE_LEVEL, decoders.ByteLevel()),
    "byte level, stripped": backend_of(BYTE_LEVEL, sequence(decoders.ByteLevel(), STRIP)),
    "Llama 2": backend_of(
        FALLBACK, sequence(REPLACE, decoders.ByteFallback(), decoders.Fuse(), STRIP)
    ),
    "Gemma": backend_of(FALLBACK, sequence(REPLACE, decoders.ByteFallback(), decoders.Fuse())),
    "fallback, then Metaspace": backend_of(
        FALLBACK, sequence(decoders.ByteFallback(), decoders.Metaspace())
    ),
    "Metaspace": backend_of(WORDS, decoders.Metaspace()),
    "Metaspace that keeps the first": backend_of(WORDS, decoders.Metaspace(prepend_scheme="never")),
    "WordPiece": backend_of(WORDS, decoders.WordPiece()),
    "WordPiece without cleanup": backend_of(WORDS, decoders.WordPiece(cleanup=False)),
    "no decoder": backend_of(WORDS, None),
    "vanishing": backend_of(WORDS, sequence(decoders.Replace("▁", ""), decoders.Fuse(), STRIP)),
    "BPE": backend_of(WORDS, decoders.BPEDecoder("</w>")),
    "CTC": backend_of(WORDS, decoders.CTC("a", "▁")),
    "replaced when joined": backend_of(
        WORDS, sequence(decoders.Fuse(), decoders.Replace("aa", "b"))
    ),
    "bytes made by a stage": backend_of(
        [*WORDS, "<0▁xC3>", "<0▁xA9>"], sequence(decoders.Replace("▁", ""), decoders.ByteFallback())
    ),
}
LISTED_TWICE = backend_of(FALLBACK, sequence(decoders.ByteFallback(), decoders.Fuse()))
LISTED_TWICE.add_tokens([AddedToken(SPECIAL_TOKENS[0], special=False)])
BACKENDS["special, then listed as none"] = LISTED_TWICE
UNIGRAM = Backend(models.Unigram([(word, -1.0) for word in WORDS], 0, byte_fallback=False))
UNIGRAM.decoder = decoders.Metaspace()
BACKENDS["Unigram"] = UNIGRAM
STREAMING = [name for name in BACKENDS if name not in ("BPE", "CTC", "replaced when joined")]

many_ids = st.lists(
    st.one_of(
        st.integers(0, 300),
        st.sampled_from([0x0A, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 256, 257, 258, 270, 271]),
        st.integers(0, 5),
    ),
    max_size=40,
)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("skip", [True, False])
@settings(max_examples=40)
@given(token_ids=many_ids, cut=st.integers(0, 12))
@example(token_ids=[0x0A, 0xE2, 256, 257], cut=0)
@example(token_ids=[0x72, 256 + len(WORDS), 0x96], cut=0)
@example(token_ids=[0xFF] * 100 + [256] * 100, cut=0)
def test_streamed_text_adds_up(name: str, skip: bool, token_ids: list[int], cut: int) -> None:
    tokenizer = Tokenizer(Path("tokenizer.json"), BACKENDS[name], {})
    stream = tokenizer.stream(skip_special_tokens=skip)
    texts = [stream.push(token_ids[:cut])]
    texts += [stream.push([token_id]) for token_id in token_ids[cut:]]
    whole = tokenizer.decode(token_ids, skip_special_tokens=skip)
    assert whole.startswith("".join(texts))
    assert "".join([*texts, stream.finish(), stream.finish()]) == whole


@pytest.mark.parametrize("name", STREAMING)
@settings(max_examples=40)
@given(before=many_ids)
def test_text_does_not_wait_longer_than_it_must(name: str, before: list[int]) -> None:
    """A word ends a run of bytes and an unfinished character."""
    backend = BACKENDS[name]
    word = id_of(backend, "a")
    stream = Detokenizer(backend, skip_special_tokens=True)
    text = "" if name == "bytes made by a stage" else backend.decode([*before, word, word])
    assert stream.push([*before, word, word]) == text


@define
class Counting:
    """A tokenizer that counts how many ids it decodes."""

    backend: Backend
    num_decoded: int = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.backend, name)

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        self.num_decoded += len(token_ids)
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_cost_of_a_token_is_bounded(name: str) -> None:
    """Whatever kind of token never ends: bytes that are no text, spaces, tokens without text."""
    for token in ["a", "▁", "##", "<0xE2>", "â", "ÿ", "<s>", "no such token"]:
        backend = Counting(BACKENDS[name])
        stream = Detokenizer(backend, skip_special_tokens=True)  # type: ignore[arg-type]
        stream.push([id_of(backend.backend, token)] * 2000)
        stream.push([0] * 10)
        assert backend.num_decoded <= 2000 * 30 + 64**2


def test_a_run_of_bytes_whose_end_says_nothing_alone_is_cheap() -> None:
    stages = decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1900, 0)
    backend = Counting(backend_of(["<0x20>", ""], sequence(*stages)))
    stream = Detokenizer(backend, skip_special_tokens=True)  # type: ignore[arg-type]
    assert stream.push([0] * 2000 + [1]) + stream.finish() == " " * 100
    assert backend.num_decoded <= 10 * 2000


def test_text_that_cannot_be_decoded_is_a_replacement_character() -> None:
    backend = backend_of(["a" * 40, "x" * 40 + "b"], decoders.Replace(Regex("(x+x+)+y"), " "))
    stream = Detokenizer(backend, skip_special_tokens=True)
    assert stream.push([1]) + stream.finish() == "\ufffd"


def test_an_added_token_that_cannot_be_decoded_alone_stops_no_stream() -> None:
    # The library panics when it strips the end of a token without text, such as Metaspace's "▁".
    strip = decoders.Strip(" ", 0, 1)
    backend = backend_of(["a", "b"], sequence(decoders.Metaspace(), strip))
    backend.add_tokens([AddedToken("▁", special=False)])
    stream = Detokenizer(backend, skip_special_tokens=True)
    assert stream.push([0, 1]) + stream.finish() == "ab"
