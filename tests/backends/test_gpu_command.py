"""`make gpu`: what it runs and records, as far as a host without a GPU can test it."""

import itertools
import json
import runpy
import sys
from pathlib import Path

import pytest

from lab.gpu import __main__ as gpu
from lab.gpu.__main__ import Part, main, parts
from lab.gpu.record import keep
from lab.gpu.sanitize import command_of, judge

TESTS = Path(__file__).parents[1]
# A shell's background jobs are born ignoring interrupts.
ENDLESS = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
time.sleep(600)
"""


def test_parts_end_in_time_and_the_record_is_written_after_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {
        "fine": "print('found 3 and 1/2 in /home/me/test_a.py')",
        "broken": "raise SystemExit(3)",
        "endless": ENDLESS,
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    some = [
        Part("kernels", ("fine",), 9, "found", alone=True),
        Part("tests", ("broken",), 9, "x"),
        Part("engine", ("endless",), 1.5, "found"),
    ]
    monkeypatch.setattr(gpu, "parts", lambda _: some)
    path = tmp_path / "gpu.json"
    earlier = {"machine": {"device": "a"}, "date": "b", "outcome": "c", "seconds": 1, "said": []}
    keep(path, "proof", earlier)
    where = ["--out", str(tmp_path), "--logs", str(tmp_path / "logs")]
    assert main([*where, "--part", "kernels"]) == 0
    assert main(where) == 1
    assert "tests: failed, exit code 3" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert [*record] == ["engine", "kernels", "proof", "tests"]
    assert record["engine"]["outcome"] == "out of time"
    assert record["kernels"]["said"] == ["found 3 and 1/2 in …"]
    assert record["kernels"]["machine"]["torch"]
    assert "| found 3 and 1/2 in … |" in path.with_suffix(".md").read_text()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.slow
def test_all_commands_know_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = parts(gpu._parser().parse_args(["--backend", "triton", "--backend", "cupy"]))
    assert {part.name.partition(" ")[0] for part in everything} == {*gpu.PARTS}
    together = [part.seconds for part in everything if not part.alone]
    assert sum(part.seconds for part in everything if part.alone) + max(together) <= 600
    commands = [part.command for part in everything if part.command[0] != "pytest"]
    commands.append(tuple(command_of("cupy", "none", 9, 60.0)[2:]))
    monkeypatch.syspath_prepend(str(TESTS))
    for module, *arguments in commands:
        monkeypatch.setattr(sys, "argv", [module, *arguments, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
        assert not ended.value.code, module


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
