"""Settings of all tests."""

import gc

import pytest
import torch
from hypothesis import settings

# The same examples every time, and no verdict that depends on how fast the machine is today.
settings.register_profile("acceptor", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("acceptor")


def pytest_collection_finish() -> None:
    # What is imported stays, and looking through it again and again takes a tenth of the time.
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and a PyTorch that was built for it")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Use a parameter's name, such as a policy's, a page's or a bug's."""
    name = getattr(val, "name", None)
    return name if isinstance(name, str) else None
