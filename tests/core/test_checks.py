"""What cannot be is told in one sentence; errors form one family, and are Python's own, too."""

import math
import re
from functools import partial
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from acceptor import core
from acceptor.backends import load_sampler
from acceptor.backends.conformance import Case, Generator
from acceptor.core import InvalidInputError, Recipe, SampleBatch, SamplingParams, SamplingTensors
from acceptor.core.call_memory import check_fits
from acceptor.core.checks import check_integer, check_integers
from acceptor.core.token_counts import TokenCounts
from kit.batches import dense, stacked

VALUES = st.integers(-2, 9) | st.sampled_from([True, 2.0, "1", None, 10**400])


def complaint(values: list[object], high: float, *, together: bool) -> str:
    try:
        if together:
            check_integers("ids", values, 0, high)
        else:
            for value in values:
                check_integer("ids", value, 0, high)
    except InvalidInputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("high", [7, math.inf])
@given(values=st.lists(VALUES, max_size=4))
def test_the_first_that_does_not_fit_is_told_of(values: list[object], high: float) -> None:
    alone = complaint(values, high, together=False)
    assert complaint(values, high, together=True) == alone
    assert bool(alone) == any(
        not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high
        for value in values
    )


def test_the_core_offers_only_what_it_lists_and_its_errors_are_one_family() -> None:
    assert sorted(core.__all__) == sorted(set(core.__all__))
    offered = [getattr(core, name) for name in core.__all__ if name.endswith("Error")]
    assert len(offered) > 5
    assert all(issubclass(error, core.AcceptorError) for error in offered)
    assert issubclass(core.InvalidInputError, ValueError)


REQUEST = SamplingParams(seed=1, presence_penalty=0.5, logit_bias={0: 1.0})
PARAMS, COUNTS = SamplingTensors.stack([REQUEST] * 2), TokenCounts.empty(2, 4)
ROWS = dense(torch.zeros(2, 2, 4))
ROW = SampleBatch(logits=torch.zeros(2, 4), positions=torch.tensor([5, 6]))
DRAFT = evolve(ROW, draft_index=1)
MAPPED = evolve(DRAFT, draft_to_target=torch.arange(4), target_vocab_size=8)
MASKED = {"allowed_tokens": torch.zeros(2, 1, dtype=torch.int32)}
STRICT, DRAWN = core.Strict(), core.empty_sample_output(ROW, PARAMS)
OUT = core.empty_verify_output(ROWS, PARAMS, STRICT)
SAMPLER, CHECKED = load_sampler("reference"), load_sampler("reference", checked=True)
MASK, SEEN, IDS = COUNTS.prompt_mask, COUNTS.output_counts, torch.tensor([0, 1])
NO_TOKENS, APART = torch.zeros(2, 3, dtype=torch.int64), {"allowed_tokens": SEEN[:, ::2]}
META = evolve(ROW, logits=ROW.logits.to("meta"), positions=IDS.to("meta"))
TOP = stacked(2, logprobs=1)
LONGER = core.empty_verify_output(dense(torch.zeros(2, 3, 4)), TOP, STRICT)
NO_FLAGS: list[Any] = ["no", 0, None, IDS.any()]
empty, observe = TokenCounts.empty, core.AcceptanceStatistics().observe
WRONG: list[tuple[Any, str]] = [
    *[((empty, size, 4), "num_slots") for size in (-1, 2.0, None, True, 2**63)],
    *[((empty, 2, size), "vocab_size") for size in (-1, 2.0, None, True, 2**63)],
    *[((empty, 2, 4, device), "device") for device in ("tpu9", 10**30, None)],
    *[((TokenCounts, mask, SEEN), "prompt_mask") for mask in (MASK[0], MASK.int(), MASK[None])],
    *[((TokenCounts, MASK, n), "output_counts") for n in (SEEN[:1], SEEN.long(), SEEN.to("meta"))],
    ((TokenCounts, MASK.repeat(1, 2)[:, :4], SEEN), "prompt_mask"),
    ((TokenCounts, MASK, SEEN.repeat(1, 2)[:, :4]), "output_counts"),
    *[((COUNTS.start, 0, ids), "prompt_token_ids") for ids in (None, 5, [0.5], "1", iter([1]))],
    *[((COUNTS.add, ids, NO_TOKENS), "slot_ids") for ids in (None, IDS[:1], IDS.float())],
    *[((COUNTS.add, IDS, new), "token_ids") for new in (None, IDS, NO_TOKENS.float())],
    *[((observe, size, 0), "num_draft_tokens") for size in (-1, None, 1.0)],
    *[((observe, 2, size), "num_accepted") for size in (-1, None, 3)],
    *[((SamplingTensors.stack, params), "params") for params in (REQUEST, None)],
    *[((partial(evolve, PARAMS, num_logprobs=n),), "num_logprobs") for n in (-1, 1.0, "1", 2**31)],
    *[((partial(evolve, PARAMS.target, any_top_k=n),), "any_top_k") for n in NO_FLAGS],
    *[((partial(core.Strict, coupled=value),), "coupled") for value in NO_FLAGS],
    ((SamplingTensors.stack, [REQUEST, Recipe()]), "params[1]"),
    ((core.RecipeTensors.stack, [Recipe(), None], "cpu"), "recipes[1]"),
    ((core.RecipeTensors.stack, [Recipe()], None), "device"),
    ((SamplingTensors.stack, [REQUEST, SamplingParams()]), "params[1].seed"),
    *[((core.num_mask_words, size), "vocab_size") for size in (-1, None, 0.5)],
    *[((core.draft_rows, IDS, IDS, size), "max_spec_len") for size in (-1, None, 2**63)],
    ((core.target_ids_from_offsets, torch.zeros(3)), "offsets"),
    ((core.logits_from_probs, NO_TOKENS), "probs"),
    ((core.pack_allowed, NO_TOKENS), "allowed"),
    ((core.check_workspace, MASK.view(torch.uint8)[0], None, MASK.device), "size"),
    ((core.check_sample_output, OUT, ROW, PARAMS), "out"),
    ((core.empty_verify_output, ROW, PARAMS, STRICT), "batch"),
    ((SAMPLER.verify, ROW, PARAMS, STRICT), "batch"),
    *[((call, ROWS, PARAMS), "batch") for call in (core.empty_sample_output, CHECKED.sample)],
    ((core.empty_sample_output, ROW, PARAMS, "tpu9"), "device"),
    ((SAMPLER.sample, META, stacked(2, "meta")), "batch"),
    ((CHECKED.sample, ROW, [REQUEST] * 2), "params"),
    ((core.chosen_logprobs, ROW, PARAMS, OUT, NO_TOKENS), "batch"),
    ((core.chosen_logprobs, ROWS, None, OUT, NO_TOKENS), "params"),
    ((core.chosen_logprobs, ROWS, PARAMS, DRAWN, NO_TOKENS), "output"),
    ((core.chosen_logprobs, ROWS, PARAMS, OUT, NO_TOKENS), "logprobs"),
    ((core.chosen_logprobs, ROWS, TOP, LONGER, NO_TOKENS), "output.token_ids"),
    ((partial(Case, num_draft_tokens=(-1,)),), "num_draft_tokens"),
    ((partial(Case, features=frozenset("x")),), "features"),
    ((Generator, ("x",)), "policies"),
    ((check_fits, ROW, stacked(2, "meta")), "params.seeds"),
    ((check_fits, ROW, stacked(2, logprobs=5)), "num_logprobs"),
    ((partial(evolve, MAPPED, draft_index=None),), "draft_to_target"),
    ((partial(evolve, MAPPED, target_vocab_size=None),), "target_vocab_size"),
    ((partial(evolve, ROWS, draft_to_target=SEEN[0]),), "draft_to_target"),
    *[((partial(evolve, row, **MASKED),), "allowed_tokens") for row in (MAPPED, DRAFT)],
    ((partial(evolve, ROW, logits=torch.zeros(2, 40), **APART),), "allowed_tokens.stride(1)"),
]


@pytest.mark.parametrize(("call", "name"), WRONG)
def test_a_wrong_argument_is_named(call: tuple[Any, ...], name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{re.escape(name)}: expected .*, got ."):
        call[0](*call[1:])
