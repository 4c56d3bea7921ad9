"""What `make sanitize` runs and concludes, as far as a host without a GPU can tell."""

import itertools

import pytest

from acceptor.backends.conformance.__main__ import _parser
from kit.sanitize import command_of, judge

ENDED = "0 s\nconformant\n"


@pytest.mark.parametrize(
    ("tool", "output", "findings", "clean"),
    [
        ("none", ENDED, 0, True),
        ("none", "NOT conformant\n", None, False),
        ("memcheck", ENDED + "========= ERROR SUMMARY: 0 errors\n", 0, True),
        ("memcheck", ENDED + "========= ERROR SUMMARY: 66 errors\n", 66, False),
        ("memcheck", "========= ERROR SUMMARY: 0 errors\n", 0, False),
        ("racecheck", ENDED + "= RACECHECK SUMMARY: 2 hazards displayed", 2, False),
        ("racecheck", "", None, False),
    ],
)
def test_a_tool_is_clean_only_if_it_ended_and_found_nothing(
    tool: str, output: str, findings: int | None, *, clean: bool
) -> None:
    outcome = judge(tool, output, 1.0)
    assert outcome.findings == findings
    assert outcome.is_clean is clean


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_tools_that_count_mbarriers_are_told_how_many_there_are(tool: str) -> None:
    command = command_of("cupy", tool, 9, 60.0)
    assert (("--num-cuda-barriers", "32") in itertools.pairwise(command)) == (tool != "memcheck")


def test_the_kit_knows_its_arguments() -> None:
    _, _, module, *arguments = command_of("cupy", "none", 9, 60.0)
    assert module == "acceptor.backends.conformance"
    assert _parser().parse_args(arguments).batches == 9
