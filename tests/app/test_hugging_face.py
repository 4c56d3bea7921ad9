"""`custom_generate` of transformers: a batch of ragged prompts, beside the library's methods."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import frozen
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel, StoppingCriteria

from acceptor.adapters.draft_heads.loader import load_head
from acceptor.adapters.library_model.loader import adapt_network
from acceptor.app.drafter import NgramDrafter
from acceptor.app.hugging_face import Speculation, generate
from acceptor.backends import load_sampler
from acceptor.core import POLICIES, InvalidInputError, Strict, Synthetic
from kit.draft_heads import eagle
from kit.head_decoding import decoder_of
from kit.small_families import FAMILIES, VOCAB_SIZE, random_model
from kit.toy_pair import decoder_for
from kit.toy_requests import ask

WIDTH, NUM_NEW = 12, 12
LENGTHS = (7, 1, 12, 3, 9, 5, 2, 12)


@frozen
class Pair:
    target: PreTrainedModel
    draft: PreTrainedModel

    def generate(self, speculation: Any = None, **settings: Any) -> Any:
        """The library's own method without a speculation; 12 new tokens unless told otherwise."""
        ids, mask = batch()
        how = {"max_new_tokens": NUM_NEW, "do_sample": False, **settings}
        if speculation is not None:
            how["custom_generate"] = speculation
        return self.target.generate(ids, attention_mask=mask, **how)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    mask = (torch.arange(WIDTH) >= WIDTH - torch.tensor(LENGTHS)[:, None]).long()
    return torch.randint(2, VOCAB_SIZE, mask.shape, generator=generator) * mask, mask


def prompts() -> list[list[int]]:
    return [ids[-length:] for ids, length in zip(batch()[0].tolist(), LENGTHS, strict=True)]


def make_pair(family: str) -> Pair:
    """A target, and a draft that is the target with a slightly different LM head."""
    target = random_model(FAMILIES[family])
    draft = deepcopy(target)
    head = draft.get_output_embeddings()
    with torch.no_grad():
        head.weight = torch.nn.Parameter(head.weight + 0.05 * torch.randn_like(head.weight))
    return Pair(target, draft)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Pair:
    return make_pair(request.param)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair("llama")


def total(output: Any, counted: str = "num_accepted_tokens") -> int:
    return sum(getattr(row, counted) for row in output.statistics)


def test_greedy_equals_the_library(family: Pair) -> None:
    expected = family.generate()
    output = family.generate(Speculation(draft=family.draft), return_dict_in_generate=True)
    assert torch.equal(output.sequences, expected)
    assert 0 < total(output) < total(output, "num_draft_tokens")


def test_strict_equals_plain_decoding_and_a_batch_its_rows(family: Pair) -> None:
    recipe: dict[str, Any] = {"temperature": 0.9, "top_k": 40, "top_p": 0.95}
    settings = {"do_sample": True, "repetition_penalty": 1.1, "eos_token_id": None, **recipe}
    settings |= {"max_new_tokens": 7}
    output = family.generate(Speculation(draft=family.draft, seed=3), **settings)
    plain = decoder_for(adapt_network(family.target), load_sampler("reference"), Strict())
    requests = [
        ask(*prompt, seed=3 + row, max_tokens=7, repetition_penalty=1.1, **recipe)
        for row, prompt in enumerate(prompts())
    ]
    expected = [list(result.token_ids) for result in plain.generate(requests)]
    assert output[:, WIDTH:].tolist() == expected
    alone = family.target.generate(
        torch.tensor([prompts()[4]]),
        custom_generate=Speculation(draft=family.draft, seed=7),
        **settings,
    )
    assert alone[0, LENGTHS[4] :].tolist() == expected[4]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_serves(pair: Pair, name: str) -> None:
    speculation = Speculation(draft=pair.draft, policy=POLICIES[name], seed=1)
    output = pair.generate(speculation, return_dict_in_generate=True)
    assert total(output)
    if POLICIES[name].lossless:
        assert torch.equal(output.sequences, pair.generate())
    sampled = pair.generate(speculation, do_sample=True, typical_p=0.9, max_new_tokens=5)
    assert sampled.shape == (len(LENGTHS), WIDTH + 5)


class Hashed(LogitsProcessor):  # type: ignore[misc]  # transformers is not typed
    """Bans half of the vocabulary, depending on all previous ids and the row's number."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert scores.shape == (len(LENGTHS), VOCAB_SIZE)
        places = torch.arange(1, input_ids.shape[1] + 1)
        key = (input_ids * places).sum(1) + torch.arange(len(LENGTHS))
        banned = (torch.arange(VOCAB_SIZE) * 7 + key[:, None]) % 5 < 2
        return scores.masked_fill_(banned, -torch.inf)


PROCESSORS: dict[str, dict[str, Any]] = {
    "custom": {"logits_processor": [Hashed()]},
    "repetition": {"repetition_penalty": 1.3},
    "encoder": {"encoder_repetition_penalty": 1.5, "encoder_no_repeat_ngram_size": 2},
    "minimum": {"min_new_tokens": 9, "eos_token_id": list(range(20))},
    "suppressed": {"suppress_tokens": [8, 9, 10], "begin_suppress_tokens": list(range(30))},
    "decay": {"exponential_decay_length_penalty": (4, 1.4), "eos_token_id": [5, 6]},
    "prefix": {
        "prefix_allowed_tokens_fn": lambda row, ids: [
            (int(ids.sum()) + row + i) % 60 for i in range(9)
        ]
    },
    "watermark": {"watermarking_config": {"bias": 3.0, "greenlist_ratio": 0.4}},
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_see_the_prefix_of_every_position(pair: Pair, name: str) -> None:
    expected = pair.generate(**PROCESSORS[name])
    assert not torch.equal(expected, pair.generate())
    output = pair.generate(
        Speculation(draft=pair.draft, num_spec_tokens=3),
        return_dict_in_generate=True,
        **PROCESSORS[name],
    )
    assert torch.equal(output.sequences, expected)
    assert total(output)


def test_lossy_policies_emit_only_what_processors_let_come(pair: Pair) -> None:
    speculation = Speculation(draft=pair.draft, policy=Synthetic((1.0,)), seed=1)
    settings: dict[str, Any] = {"suppress_tokens": [*range(0, VOCAB_SIZE, 2)], "do_sample": True}
    assert (pair.generate(speculation, **settings)[:, WIDTH:] % 2 == 1).all()


def test_drafts_change_no_sampled_token_under_processors(pair: Pair) -> None:
    """Top-p before min-p runs as transformers' own, on every position of a draft."""
    settings: dict[str, Any] = {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.02}
    settings |= {"do_sample": True, "max_new_tokens": 6, "logits_processor": [Hashed()]}
    plain = pair.generate(Speculation(num_spec_tokens=0, seed=4), **settings)
    # Scores are computed separately, and change no token either.
    settings |= {"return_dict_in_generate": True, "output_scores": True}
    output = pair.generate(Speculation(draft=pair.draft, seed=4), **settings)
    assert torch.equal(output.sequences, plain)
    assert 0 < total(output) < total(output, "num_draft_tokens")


class LastIsOf(StoppingCriteria):  # type: ignore[misc]
    """Ends row r at a token whose remainder by 9 is r."""

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        assert scores is None or len(scores) == input_ids.shape[1] - WIDTH
        return input_ids[:, -1] % 9 == torch.arange(len(input_ids))


@pytest.mark.parametrize("output_scores", [False, True])
def test_criteria_end_rows_within_a_draft(pair: Pair, output_scores: bool) -> None:
    settings = {"stopping_criteria": [LastIsOf()], "output_scores": output_scores}
    settings |= {"max_new_tokens": 40, "return_dict_in_generate": True}
    expected = pair.generate(**settings).sequences
    output = pair.generate(Speculation(draft=pair.draft), **settings)
    assert torch.equal(output.sequences, expected)
    assert len({tuple(row.nonzero().flatten()[-1:].tolist()) for row in expected}) > 3
    assert total(output) < (expected[:, WIDTH:] != 0).sum()


@pytest.mark.parametrize("eos", [1, [1, 7, 20, 33]])
def test_scores_and_logits_are_the_librarys(pair: Pair, eos: Any) -> None:
    settings = {"eos_token_id": eos, "repetition_penalty": 1.2, "no_repeat_ngram_size": 3}
    settings |= dict.fromkeys(("return_dict_in_generate", "output_scores", "output_logits"), True)
    expected = pair.generate(**settings)
    output = pair.generate(Speculation(draft=pair.draft), **settings)
    assert torch.equal(output.sequences, expected.sequences)
    assert output.past_key_values is None
    going_on = output.sequences[:, WIDTH:] != 0
    for name in ("scores", "logits"):
        assert len(output[name]) == len(expected[name])
        for step, (got, want) in enumerate(zip(output[name], expected[name], strict=True)):
            rows = going_on[:, step]
            torch.testing.assert_close(got[rows], want[rows], atol=2e-5, rtol=0)
            assert not got[~rows].any()


def test_torchs_seed_repeats_a_call(pair: Pair) -> None:
    def draw(seed: int) -> Any:
        torch.manual_seed(seed)
        return pair.generate(generate, do_sample=True, num_return_sequences=2, max_new_tokens=4)

    first = draw(1)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))
    assert len(first) == 2 * len(LENGTHS)
    assert not torch.equal(first[0::2], first[1::2])


class Recorder(list[Any]):
    def put(self, value: Tensor) -> None:
        self.append(value.tolist())

    def end(self) -> None:
        self.append("end")


def test_a_streamer_is_told_what_the_library_tells(pair: Pair) -> None:
    ours, theirs = Recorder(), Recorder()
    pair.generate(Speculation(draft=pair.draft, streamer=ours))
    pair.generate(streamer=theirs)
    assert ours == theirs


def test_drafts_come_from_any_drafter_and_vocabulary(pair: Pair) -> None:
    numbers: dict[str, Any] = {"num_spec_tokens": np.int64(0), "seed": np.int32(1)}
    assert torch.equal(pair.generate(Speculation(**numbers)), pair.generate())
    with pytest.raises(InvalidInputError, match=r"^draft: expected a model .*, got str$"):
        Speculation(draft="a folder")
    for policy in ("strict", Strict):
        with pytest.raises(InvalidInputError, match=r"^policy: expected one such as Probabil"):
            Speculation(policy=policy)  # type: ignore[arg-type]
    output = pair.generate(
        Speculation(draft=NgramDrafter(num_spec_tokens=1, max_ngram=1), num_spec_tokens=2),
        return_dict_in_generate=True,
    )
    assert max(len(one.num_accepted_per_pos) for one in output.statistics) == 2
    for vocab_size in (VOCAB_SIZE - 9, VOCAB_SIZE + 3):
        config = deepcopy(FAMILIES["llama"])
        config.vocab_size = vocab_size
        output = pair.generate(Speculation(draft=random_model(config)), max_new_tokens=5)
        assert torch.equal(output, pair.generate(max_new_tokens=5))


def test_prompts_are_entered_in_chunks(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptor.app.hugging_face.loop.CHUNK_LEN", 4)
    output = pair.generate(Speculation(draft=pair.draft), max_new_tokens=4)
    assert torch.equal(output, pair.generate(max_new_tokens=4))


def test_a_head_drafts_from_hidden_states(pair: Pair, tmp_path: Path) -> None:
    target = adapt_network(pair.target)
    head = load_head(eagle().save(tmp_path), "eagle", target)
    drafter = decoder_of(target, head, Strict(), 1).drafter
    speculation = Speculation(draft=drafter, num_spec_tokens=3)
    output = pair.generate(speculation, return_dict_in_generate=True)
    assert torch.equal(output.sequences, pair.generate())
    assert total(output, "num_drafts")


def test_logits_that_are_none_name_their_row(pair: Pair) -> None:
    def nothing_for_row_2(_: Tensor, scores: Tensor) -> Tensor:
        scores[2] = -torch.inf
        return scores

    with pytest.raises(InvalidInputError, match=r"row 2: expected logits .* TARGET_LOGITS_INVALID"):
        pair.generate(generate, logits_processor=[nothing_for_row_2])
