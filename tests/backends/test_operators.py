"""The operators: their description for `torch.compile` is true, and it compiles around them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor

from acceptor.backends.conformance import Case, run_case
from acceptor.backends.conformance.calls import moved
from acceptor.backends.conformance.case import FEATURES
from acceptor.backends.conformance.inputs import make_inputs
from acceptor.backends.operators import SampleOperator, VerifyOperator
from acceptor.backends.operators.registration import SAMPLE, VERIFY, describe, rebuild
from acceptor.core import (
    Fly,
    InvalidInputError,
    Logprobs,
    Policy,
    Probabilistic,
    SampleBatch,
    SampleOutput,
    Sampler,
    SamplingTensors,
    Strict,
    Synthetic,
    Typical,
    VerifyBatch,
    VerifyOutput,
)
from kit.batches import stacked

NUM_REQS, VOCAB_SIZE, WIDTH = 3, 40, 8
BACKENDS = [
    "reference",
    pytest.param("triton", marks=pytest.mark.gpu),
    pytest.param("cupy", marks=pytest.mark.gpu),
]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def device_of(backend: str) -> str:
    return "cpu" if backend == "reference" else "cuda"


def params_on(device: str, **changes: Any) -> SamplingTensors:
    return stacked(NUM_REQS, device, temperature=0.7, **changes)


def tensors_of(batch: Any, names: Sequence[str]) -> dict[str, Any]:
    """The operators' arguments from a batch."""
    return {name: getattr(batch.token_counts, name, getattr(batch, name, None)) for name in names}


@frozen
class ThroughOperators(Sampler):
    """A backend of which each call goes through an operator."""

    backend: str

    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **_: Any
    ) -> VerifyOutput:
        told = VerifyOperator(self.backend, policy, params)(**tensors_of(batch, VERIFY))
        return VerifyOutput(**told._asdict() | logprobs_of(told))

    def sample(self, batch: SampleBatch, params: SamplingTensors, **_: Any) -> SampleOutput:
        names = ("draft_index", "draft_stream", "target_vocab_size")
        facts: dict[str, Any] = {name: getattr(batch, name) for name in names}
        operator = SampleOperator(backend=self.backend, params=params, **facts)
        told = operator(**tensors_of(batch, SAMPLE))
        return SampleOutput(**told._asdict() | logprobs_of(told))


def logprobs_of(told: Any) -> dict[str, Logprobs | None]:
    return {"logprobs": told.logprobs and Logprobs(**told.logprobs._asdict())}


EVERYTHING = frozenset(FEATURES) - {"extremes", "bad target rows", "arbitrary drafts"}


@every_backend
@pytest.mark.parametrize("policy", [Probabilistic(), Strict(coupled=True), Fly(window=1)], ids=str)
@pytest.mark.parametrize("features", [EVERYTHING, frozenset[str]()], ids=["everything", "nothing"])
def test_operator_calls_conform(backend: str, policy: Policy, features: frozenset[str]) -> None:
    sampler, device = ThroughOperators(backend), torch.device(device_of(backend))
    how: dict[str, Any] = {"policy": policy, "features": features, "variation": "in part"}
    how |= {"vocab_size": VOCAB_SIZE, "drafter": "mapped" if features else "same"}
    for seed in range(3):
        case = Case(seed=seed, num_draft_tokens=(2, 0, 1), **how)
        assert not run_case(case, sampler, device).unexplained


class Outer:
    @frozen
    class Inner(Strict):
        """A policy in a class."""


def test_values_survive_being_text() -> None:
    @frozen
    class Local(Strict):
        """A policy in a function."""

    for policy in (Outer.Inner(coupled=True), Fly(window=3), Synthetic((0.5, 0.25)), Typical()):
        assert rebuild(describe(policy, []), []) == policy
    for value in (object(), Local()):
        with pytest.raises(InvalidInputError, match=r"^operators: expected .*, got "):
            describe(value, [])
    draw, row = SampleOperator(backend="reference", params=stacked(1)), torch.zeros(1, 4)
    with pytest.raises(InvalidInputError, match=r"^prompt_mask: expected a tensor, got NoneType"):
        draw(logits=row, positions=torch.tensor([1]), output_counts=row.int())


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_batches_of_other_sizes_share_a_compiled_step() -> None:
    graphs: list[object] = []

    def count(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(Step.forward, fullgraph=True, backend=count)
    for num_reqs in (3, 4, 5, 6):
        step = Step("reference", Probabilistic(), stacked(num_reqs, temperature=0.7, logprobs=1))
        hidden = torch.randn(num_reqs, 2, WIDTH, generator=torch.Generator().manual_seed(1))
        given = step, hidden, torch.arange(num_reqs)
        with torch.no_grad():
            assert all(map(torch.equal, compiled(*given), Step.forward(*given)))
    assert len(graphs) == 2


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["triton", "cupy"])
def test_a_whole_step_compiles_with_inductor(backend: str) -> None:
    assert_compiled_like_eager(backend, "inductor")


@every_backend
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_what_the_compiler_is_told_is_true(backend: str) -> None:
    device = device_of(backend)
    case = Case(vocab_size=VOCAB_SIZE, num_draft_tokens=(2,) * NUM_REQS)
    batch = moved(make_inputs(case).with_arbitrary_drafts().verify_batch(), torch.device(device))
    tensors = tensors_of(batch, VERIFY)
    policy = Typical() if backend == "reference" else Probabilistic()
    logprobs = 3 if backend == "reference" else None
    verify = VerifyOperator(backend, policy, params_on(device, logprobs=logprobs))
    call = (*verify._bound, [*tensors.values()])
    torch.library.opcheck(torch.ops.acceptor.verify.default, call)
    draw = SampleOperator(backend=backend, params=params_on(device, logprobs=logprobs))
    rows = {"logits": tensors["target_logits"][:NUM_REQS], "positions": tensors["positions"]}
    call = (*draw._bound, [rows.get(name) for name in SAMPLE])
    torch.library.opcheck(torch.ops.acceptor.sample.default, call)
