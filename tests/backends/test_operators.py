"""The operators: what `torch.compile` is told about them is true, and it can work around them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from acceptor.backends import load_sampler
from acceptor.backends.operators import SampleOperator, VerifyOperator
from acceptor.backends.operators.registration import SAMPLE, VERIFY
from acceptor.backends.operators.structure import describe, rebuild
from acceptor.core import (
    Fly,
    InvalidInputError,
    Policy,
    Probabilistic,
    SampleBatch,
    SamplingParams,
    SamplingTensors,
    Strict,
    Synthetic,
    TokenCounts,
    Typical,
    VerifyBatch,
    pack_allowed,
)

NUM_REQS, NUM_DRAFTS, VOCAB_SIZE, WIDTH = 3, 2, 40, 8
BACKENDS = [
    "reference",
    pytest.param("triton", marks=pytest.mark.gpu),
    pytest.param("cupy", marks=pytest.mark.gpu),
]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
Tensors = dict[str, Tensor]


def device_of(backend: str) -> str:
    return "cpu" if backend == "reference" else "cuda"


def params_on(device: str, **changes: Any) -> SamplingTensors:
    params = [SamplingParams(seed=i, temperature=0.7, **changes) for i in range(NUM_REQS)]
    return SamplingTensors.stack(params, device)


def inputs(device: str) -> Tensors:
    noise = torch.Generator().manual_seed(7)
    rows = NUM_REQS * (NUM_DRAFTS + 1)
    tensors = {
        "target_logits": 2 * torch.randn(rows, VOCAB_SIZE, generator=noise),
        "cu_num_logits": torch.arange(NUM_REQS + 1) * (NUM_DRAFTS + 1),
        "draft_token_ids": torch.randint(VOCAB_SIZE, (NUM_REQS, NUM_DRAFTS), generator=noise),
        "positions": torch.tensor([4, 9, 1]),
        "draft_logits": 2 * torch.randn(NUM_REQS, NUM_DRAFTS, VOCAB_SIZE, generator=noise),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def everything(device: str) -> Tensors:
    counts = TokenCounts.empty(NUM_REQS, VOCAB_SIZE, device)
    counts.start(1, [3, 4])
    return {
        **inputs(device),
        "slot_ids": torch.tensor([2, 0, 1], device=device),
        "prompt_mask": counts.prompt_mask,
        "output_counts": counts.output_counts,
    }


def batch_of(tensors: Tensors) -> VerifyBatch:
    tensors = dict(tensors)
    counts = None
    if "prompt_mask" in tensors:
        counts = TokenCounts(tensors.pop("prompt_mask"), tensors.pop("output_counts"))
    return VerifyBatch(**tensors, token_counts=counts)


def test_values_survive_being_text_and_tensors() -> None:
    params = params_on("cpu", top_k=3, logit_bias={2: -1.0}, presence_penalty=0.5, logprobs=2)
    tensors: list[Tensor] = []
    again = rebuild(describe(params, tensors), tensors)
    assert params.penalties is not None
    assert torch.equal(again.penalties.presence, params.penalties.presence)
    assert again.target.any_top_k
    assert again.num_logprobs == 2
    for policy in (Strict(coupled=True), Fly(window=3), Synthetic((0.5, 0.25)), Typical()):
        assert rebuild(describe(policy, []), []) == policy
    with pytest.raises(InvalidInputError, match="operators"):
        describe(object(), [])


def assert_alike(got: Any, expected: Any) -> None:
    """The same tensors, in whatever class they are."""
    for name in type(got)._fields:
        mine, theirs = getattr(got, name), getattr(expected, name)
        if isinstance(theirs, Tensor):
            assert torch.equal(mine, theirs)
        elif theirs is None:
            assert mine is None
        else:
            assert_alike(mine, theirs)


@every_backend
@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (Probabilistic(), {"presence_penalty": 0.5}),
        (Strict(), {"top_p": 0.9}),
        (Typical(), {"logprobs": 4}),
    ],
    ids=["probabilistic", "strict", "typical"],
)
def test_an_operator_returns_what_the_sampler_returns(
    backend: str, policy: Policy, changes: dict[str, Any]
) -> None:
    tensors, params = everything(device_of(backend)), params_on(device_of(backend), **changes)
    expected = load_sampler(backend).verify(batch_of(tensors), params, policy)
    assert_alike(VerifyOperator(backend, policy, params)(**tensors), expected)


def test_masks_reach_the_sampler() -> None:
    masks = {
        "allowed_tokens": pack_allowed(torch.arange(2 * VOCAB_SIZE).view(2, -1) % 3 > 0),
        "allowed_rows": torch.tensor([0, -1, 1] * NUM_REQS),
    }
    tensors, params = everything("cpu") | masks, params_on("cpu")
    expected = load_sampler("reference").verify(batch_of(tensors), params, Strict())
    assert_alike(VerifyOperator("reference", Strict(), params)(**tensors), expected)
    row: dict[str, Any] = {
        "logits": tensors["target_logits"][:2],
        "positions": torch.tensor([1, 2]),
    }
    row["allowed_tokens"] = masks["allowed_tokens"]
    params = SamplingTensors.stack([SamplingParams(seed=1)] * 2)
    drawn = load_sampler("reference").sample(SampleBatch(**row), params)
    assert_alike(SampleOperator(backend="reference", params=params)(**row), drawn)


@every_backend
@pytest.mark.parametrize("draft_index", [None, 2])
def test_a_draw_is_the_sampler_s_draw(backend: str, draft_index: int | None) -> None:
    device = device_of(backend)
    logits, positions = inputs(device)["target_logits"][:NUM_REQS], torch.arange(3, device=device)
    params = params_on(device, top_k=5)
    batch = SampleBatch(logits=logits, positions=positions, draft_index=draft_index)
    expected = load_sampler(backend).sample(batch, params)
    operator = SampleOperator(backend=backend, params=params, draft_index=draft_index)
    assert_alike(operator(logits=logits, positions=positions), expected)


class Step(torch.nn.Module):
    """A step of decoding: a layer, a draft draw from its logits, and their verification."""

    def __init__(self, backend: str, policy: Policy, params: SamplingTensors) -> None:
        super().__init__()
        self.head = torch.nn.Linear(WIDTH, VOCAB_SIZE, bias=False)
        torch.nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(3))
        self.verify = VerifyOperator(backend, policy, params)
        self.draw = SampleOperator(backend=backend, params=params, draft_index=1)

    def forward(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        logits = self.head(hidden)
        drafts = self.draw(logits=logits[:, 0] * 0.5, positions=positions).token_ids
        verified = self.verify(
            target_logits=logits.flatten(0, 1),
            cu_num_logits=2 * torch.arange(len(hidden) + 1, device=hidden.device),
            draft_token_ids=drafts[:, None],
            positions=positions,
            draft_logits=logits[:, :1] * 0.5,
        )
        return verified.token_ids + 1, verified.num_accepted, *(verified.logprobs or ())


def assert_compiled_like_eager(backend: str, compiler: str, **changes: Any) -> None:
    device = device_of(backend)
    step = Step(backend, Probabilistic(), params_on(device, **changes)).to(device)
    compiled = torch.compile(step, fullgraph=True, backend=compiler)
    for seed in (1, 2):
        noise = torch.Generator().manual_seed(seed)
        hidden = torch.randn(NUM_REQS, 2, WIDTH, generator=noise).to(device)
        positions = torch.tensor([4, 9, 1 + seed], device=device)
        with torch.no_grad():
            expected, got = step(hidden, positions), compiled(hidden, positions)
        assert all(map(torch.equal, got, expected))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize("changes", [{}, {"top_p": 0.9, "logprobs": 2}], ids=["plain", "logprobs"])
def test_a_whole_step_compiles_around_the_reference(compiler: str, changes: dict[str, Any]) -> None:
    assert_compiled_like_eager("reference", compiler, **changes)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["triton", "cupy"])
def test_a_whole_step_compiles_with_inductor(backend: str) -> None:
    assert_compiled_like_eager(backend, "inductor")


@every_backend
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_what_the_compiler_is_told_is_true(backend: str) -> None:
    device = device_of(backend)
    tensors = inputs(device)
    policy = Typical() if backend == "reference" else Probabilistic()
    logprobs = 3 if backend == "reference" else None
    verify = VerifyOperator(backend, policy, params_on(device, logprobs=logprobs))
    given = [tensors.get(name) for name in VERIFY]
    call = (verify._call, verify._param_tensors, given)
    torch.library.opcheck(torch.ops.acceptor.verify.default, call)
    draw = SampleOperator(backend=backend, params=params_on(device, logprobs=logprobs))
    rows = {"logits": tensors["target_logits"][:NUM_REQS], "positions": tensors["positions"]}
    call = (draw._call, draw._param_tensors, [rows.get(name) for name in SAMPLE])
    torch.library.opcheck(torch.ops.acceptor.sample.default, call)
