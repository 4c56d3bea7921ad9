"""What a step computes between its forwards, and what it leaves to the next one."""

import os
import subprocess
import sys

import torch

from acceptor.app import step_integers
from acceptor.app.drafter import Draft
from acceptor.app.engine.step_rows import StepRows
from acceptor.app.request_state import Verdict
from acceptor.app.verdicts import pack, read_verdicts
from acceptor.core import Status, VerifyOutput
from kit.toy_requests import state_of


def test_drafts_of_a_batch_are_drawn_as_the_reference_draws_them() -> None:
    interpret("kit.triton_engine")


def test_a_step_leaves_the_next_one_its_rows() -> None:
    """Of requests that accept nothing, something and everything, one that fails, and nobody."""
    prompts = ([11, 12], [20, 21, 22], [32], [40, 41, 42])
    states = [state_of(*prompt, slot_id=5 - place) for place, prompt in enumerate(prompts)]
    rows = StepRows.of(states, [(), (23,), (), ()], [3, 2, 1, 0], 5, 9)
    assert rows.last_token_ids.tolist() == [[11, 12], [22, 23], [32, 32], [41, 42], [0, 0]]
    assert rows.lengths.tolist() == [2, 4, 1, 3, 1]
    assert rows.draft_limits.tolist() == [3, 2, 1, 0, 0]
    assert rows.slot_ids.tolist() == [5, 4, 3, 2, 9]
    emitted = torch.tensor([[7, -1, -1], [5, 8, -1], [5, 6, 9], [-1, -1, -1], [7, -1, -1]])
    rows.advance(emitted, torch.tensor([0, 1, 2, 0, 0], dtype=torch.int32))
    assert rows.last_token_ids[:3].tolist() == [[12, 7], [5, 8], [6, 9]]
    assert (rows.last_token_ids >= 0).all()
    assert rows.lengths.tolist() == [3, 6, 4, 4, 1]
    assert rows.slot_ids.tolist() == [5, 4, 3, 2, 9]


def test_what_was_packed_is_read_as_verdicts() -> None:
    chain = torch.tensor([[1, 5, 6], [2, 5, -1], [3, 7, -1]])
    broke_off = torch.tensor([[0, 0], [0, 0], [0, 2]], dtype=torch.int32)
    emitted = torch.tensor([[5, 8, -1], [-1, -1, -1], [7, 4, -1]])
    accepted, status = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.int32)
    draft = Draft(chain, torch.zeros_like(chain), broke_off)
    output = VerifyOutput(emitted, accepted, status, None, None)
    first, failed, stopped = read_verdicts(pack(draft, output), output)
    assert first == Verdict([5, 8], num_draft_tokens=2, num_accepted=1)
    assert failed == Verdict([], 1, 0, Status.TARGET_LOGITS_INVALID)
    # The sampler saw a shorter draft; what it put behind the end does not count.
    assert stopped == Verdict([7], 1, 1, Status.DRAFT_LOGITS_INVALID)


def test_a_chain_ends_behind_its_limit() -> None:
    drawn = torch.tensor([[5, 6, 7], [8, -1, 9]]).unbind()
    bits = torch.tensor([[0, 0, 0], [0, 2, 2]]).int().unbind()
    last, lengths, draft_limits = torch.tensor([[1, 2, 3], [9, 4, 19], [2, 1, 0]])
    ids, positions, status = step_integers.chain(drawn, bits, last, lengths, draft_limits, limit=20)
    assert ids.tolist() == [[1, 5, 8], [2, 6, -1], [3, -1, -1]]
    assert positions.tolist() == [[8, 9, 10], [3, 4, 5], [18, 19, 19]]
    assert status.tolist() == [[0, 0], [0, 0], [0, 0]]


def test_places_stay_in_the_cache_where_they_are_fed() -> None:
    fed, decided = step_integers.places_to_draft(torch.tensor([1, 9]), 3, limit=10)
    assert fed.tolist() == [[0, 0, 1, 2], [7, 8, 9, 9]]
    assert decided.tolist() == [[1, 9], [2, 10], [3, 11]]
    assert decided.is_contiguous()


def interpret(module: str) -> None:
    """Run a module with Triton's interpreter; it must find nothing."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
