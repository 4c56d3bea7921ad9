"""What a step computes between its forwards, and what it leaves to the next one."""

import os
import subprocess
import sys

import torch

from acceptor.app import step_integers


def test_drafts_of_a_batch_are_drawn_as_the_reference_draws_them() -> None:
    interpret("kit.triton_engine")


def test_a_step_leaves_the_next_one_its_numbers() -> None:
    """Of requests that accept nothing, something and everything, one that fails, and nobody."""
    last = [[11, 21, 31, 41, 0], [12, 22, 32, 42, 0]]
    lengths, slots, somebody = [9, 8, 7, 6, 1], [0, 1, 2, 3, 9], [1, 1, 1, 1, 0]
    numbers = torch.tensor([*last, lengths, [3] * 5, slots, somebody])
    drafted = torch.tensor([[5, 6], [5, 6], [5, 6], [-1, -1], [5, 6]])
    emitted = torch.tensor([[7, -1, -1], [5, 8, -1], [5, 6, 9], [-1, -1, -1], [7, -1, -1]])
    accepted, status = torch.tensor([[0, 1, 2, 0, 0], [0, 0, 0, 1, 0]], dtype=torch.int32)
    packed = step_integers.hand_over(
        numbers, drafted, torch.zeros_like(drafted).int(), emitted, accepted, status
    )
    assert numbers[:2, :3].tolist() == [[12, 5, 6], [7, 8, 9]]
    assert (numbers[:2] >= 0).all()
    assert numbers[2].tolist() == [10, 10, 10, 7, 1]
    assert packed.tolist()[1] == [5, 6, 0, 0, 5, 8, -1, 1, 0]


def test_a_chain_ends_where_there_is_no_room() -> None:
    drawn = torch.tensor([[5, 6, 7], [8, -1, 9]]).unbind()
    bits = torch.tensor([[0, 0, 0], [0, 2, 2]]).int().unbind()
    last, lengths, rooms = torch.tensor([[1, 2, 3], [9, 4, 19], [2, 1, 0]])
    ids, positions, status = step_integers.chain(drawn, bits, last, lengths, rooms, limit=20)
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
