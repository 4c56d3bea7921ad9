"""A request's answer is its own: nothing around it changes a bit of it."""

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptor.backends import load_sampler
from acceptor.core import (
    Block,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingTensors,
    Strict,
    Synthetic,
)
from kit.requests import Layout, Request, answers, verify_batch
from kit.strategies import BAD_VALUES, batches, layouts, sampling_params, spoil

SAMPLER = load_sampler("reference")
POLICIES: list[Policy] = [Strict(), Probabilistic(), Block(), Synthetic((0.8, 0.5, 0.3, 0.2))]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
start = st.builds(Layout, one_hot_drafts=st.booleans())


@every_policy
@settings(max_examples=30)
@given(batches(), start, st.data())
def test_nothing_around_a_request_matters(
    policy: Policy, requests: list[Request], layout: Layout, data: st.DataObject
) -> None:
    """Neither the batch's order, strides, slots and spare room, nor being alone."""
    order = data.draw(st.permutations(range(len(requests))))
    elsewhere = data.draw(layouts(len(requests), one_hot_drafts=layout.one_hot_drafts))
    here = answers(SAMPLER, requests, policy, layout)
    moved = answers(SAMPLER, [requests[i] for i in order], policy, elsewhere)
    assert moved == [here[i] for i in order]
    assert [answers(SAMPLER, [r], policy, layout)[0] for r in requests] == here


@every_policy
@settings(max_examples=30)
@given(batches(), start, st.sampled_from(sorted(BAD_VALUES)), st.integers(0, 4), st.data())
def test_neighbours_do_not_matter(
    policy: Policy,
    requests: list[Request],
    layout: Layout,
    how: str,
    num_drafts: int,
    data: st.DataObject,
) -> None:
    """Neither their parameters, nor their logits and lengths."""
    first, *others = requests
    vocab_size = first.target_logits.shape[1]
    expected = answers(SAMPLER, requests, policy, layout)[0]
    changed = [evolve(other, params=data.draw(sampling_params(vocab_size))) for other in others]
    assert answers(SAMPLER, [first, *changed], policy, layout)[0] == expected
    changed = [spoilt(other, how, num_drafts) for other in others]
    assert answers(SAMPLER, [first, *changed], policy, layout)[0] == expected


def spoilt(request: Request, how: str, num_drafts: int) -> Request:
    """The same with at most so many drafts and no usable row of either model."""
    drafts = request.draft_token_ids[:num_drafts]
    target = request.target_logits[: len(drafts) + 1].clone()
    draft = request.draft_logits[: len(drafts)].clone()
    for row in (*target, *draft):
        spoil(row, how)
    return evolve(request, draft_token_ids=drafts, target_logits=target, draft_logits=draft)


@every_policy
@settings(max_examples=10)
@given(batches())
def test_a_batch_leaves_its_tensors_alone(policy: Policy, requests: list[Request]) -> None:
    batch = verify_batch(requests, Layout(padding=3))
    params = SamplingTensors.stack([request.params for request in requests])
    assert batch.draft_logits is not None
    assert batch.token_counts is not None
    tensors = [
        batch.target_logits,
        batch.draft_logits,
        batch.draft_token_ids,
        batch.token_counts.output_counts,
        batch.token_counts.prompt_mask,
        params.target.temperature,
    ]
    before = [tensor.clone() for tensor in tensors]
    SAMPLER.verify(batch, params, policy)
    for tensor, copy in zip(tensors, before, strict=True):
        assert torch.equal(tensor.nan_to_num(), copy.nan_to_num())


def without_drafts(requests: list[Request]) -> list[Request]:
    return [
        evolve(
            request,
            draft_token_ids=(),
            draft_logits=request.draft_logits[:0],
            target_logits=request.target_logits[:1],
        )
        for request in requests
    ]


@settings(max_examples=40)
@given(batches(bad=False))
def test_without_drafts_verification_is_plain_sampling(requests: list[Request]) -> None:
    plain = without_drafts(requests)
    batch = verify_batch(plain, Layout())
    params = SamplingTensors.stack([r.params for r in plain])
    sampled = SAMPLER.sample(
        SampleBatch(
            logits=batch.target_logits,
            positions=batch.positions,
            token_counts=batch.token_counts,
        ),
        params,
    )
    verified = SAMPLER.verify(batch, params, Strict())
    assert torch.equal(verified.token_ids[:, 0], sampled.token_ids)
    assert torch.equal(verified.status, sampled.status)
