"""The conformance kit from outside: its command, its suite, its reports and its errors."""

import json
import math
import os
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from attrs import evolve

from acceptor.backends.conformance import Case, Generator, campaign, load_backend, smallest_failure
from acceptor.backends.conformance.__main__ import main
from acceptor.backends.conformance.calls import device_for
from acceptor.backends.conformance.campaign import Campaign
from acceptor.backends.conformance.corners import corners
from acceptor.backends.conformance.findings import Difference, Findings, Record
from acceptor.backends.reference import ReferenceSampler
from acceptor.core import Policy, SamplingTensors, VerifyBatch, VerifyOutput
from acceptor.core.errors import InvalidInputError, UnavailableError

CPU = torch.device("cpu")
# After chunk 0, so that the corners are left to other tests.
OPTIONS = ["--batches", "6", "--max-vocab-size", "40", "--first-chunk", "1"]
REFERENCE = ["--backend", "reference", *OPTIONS]
STRICT_ONLY = ["--backend", "kit.only_strict:OnlyStrict", *OPTIONS]


class Broken(ReferenceSampler):
    def verify(
        self, batch: VerifyBatch, params: SamplingTensors, policy: Policy, **memory: Any
    ) -> VerifyOutput:
        if batch.num_reqs > 1 and "strict" in policy.name:
            raise RuntimeError("out of luck")
        return super().verify(batch, params, policy, **memory)


def test_a_conformant_run_ends_with_0_and_a_record_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    assert main([*REFERENCE, "--json", str(path)]) == 0
    assert capsys.readouterr().out.endswith("\nconformant\n")
    values = json.loads(path.read_text())
    assert values["is_conformant"]
    assert values["machine"]
    assert values["versions"]["torch"] == torch.__version__
    assert "| unexplained | 0 |" in path.with_suffix(".md").read_text()
    assert main([*REFERENCE, "--json", str(path), "--continue"]) == 0
    after = Record.read(path)
    assert (after.next_chunk, after.found[-1].num_batches) == (3, 12)
    assert after.found[-1].unexplained == ()


def test_two_backends_have_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    assert main([*REFERENCE, "--beside", "reference", "--json", str(path)]) == 0
    record = Record.read(path)
    assert record.names == ("reference", "reference", "reference and reference")
    assert [found.num_batches for found in record.found] == [6, 6, 6]
    assert "| unexplained | 0 | 0 | 0 |" in path.with_suffix(".md").read_text()
    wrong = [*REFERENCE, "--beside", "kit.bugs_in_draws:flat_race", "--max-vocab-size", "2000"]
    assert main([*wrong, "--batches", "8"]) == 1
    assert "NOT conformant" in capsys.readouterr().out


def test_a_campaign_over_processes_has_the_same_batches() -> None:
    alone = Campaign(("reference",), generator=Generator(largest_vocabulary=40, num_forms=8))
    together = evolve(alone, num_workers=2)
    found = [dict(some.run(0, 4, with_corners=False)) for some in (alone, together)]
    assert found[0] == found[1]
    assert {*found[0]} == {0}


def test_a_campaign_ends_at_its_deadline_with_what_it_found() -> None:
    generator = Generator(largest_vocabulary=40)
    late = Campaign(("reference",), generator=generator, deadline=time.time() + 5.1, chunk=10**4)
    ((number, (found,)),) = late.run(3, 10**4, with_corners=False)
    assert number == 3
    assert 0 < found.num_batches < 10**4
    over = evolve(late, deadline=time.time())
    assert [*over.run(3, 100, with_corners=False)] == [(3, (Findings(),))]
    assert [*evolve(over, num_workers=2).run(3, 100)] == []


@pytest.mark.parametrize(
    ("in_time", "code", "verdict"),
    [(0, 1, "INCOMPLETE: .* got 4 not comp"), (2, 1, "INCOMPLETE: .* got 2"), (4, 0, "conformant")],
)
def test_a_run_without_time_for_all_corners_is_incomplete(
    in_time: int, code: int, verdict: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    few, clock = [*islice(corners(), 4)], chain(repeat(0.0, in_time), repeat(math.inf))
    for module in ("campaign", "__main__"):
        monkeypatch.setattr(f"acceptor.backends.conformance.{module}.corners", lambda: iter(few))
    monkeypatch.setattr(campaign, "time", Mock(time=lambda: next(clock)))
    assert main(["--backend", "reference", "--batches", "0", "--seconds", "900"]) == code
    assert re.match(verdict, capsys.readouterr().out.splitlines()[-1])


def test_backends_run_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for("triton", None) == device_for("cupy", None) == "cuda"
    assert device_for("reference", None) == device_for("some.module:Backend", None) == "cpu"
    assert device_for("triton", "cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("triton", None) == "cpu"


SOME_CASE = Case(features=frozenset({"slots"})).to_json()
NEAR = Difference(0, 1, "acceptance", "1", "2", 1e-7, excused=True, shown_by="a case")
SOME = Findings(num_batches=2)


def test_a_record_adds_up_and_survives_being_written_down(tmp_path: Path) -> None:
    ties = (NEAR, evolve(NEAR, decision="logprob order"))
    near = Findings(num_batches=1, num_decisions=5, differences=ties)
    record = Record(("reference", "other"), "cpu", (Findings(),) * 3).including(4, [SOME] * 3)
    assert (record.next_chunk, record.is_conformant) == (5, True)
    record = record.including(None, (SOME, SOME, near))
    assert (record.next_chunk, record.is_conformant) == (5, True)
    assert (record.found[-1].num_turned, record.found[-1].near_tie_rate) == (1, 0.2)
    record.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == record
    with pytest.raises(InvalidInputError, match="record: expected a place to write to, got "):
        record.write(tmp_path / "record.json" / "record")
    wrong = Findings(num_batches=1, differences=(evolve(NEAR, excused=False),))
    for place in range(3):
        found = [wrong if place == index else SOME for index in range(3)]
        assert not record.including(5, found).is_conformant
    assert not Record(("reference",), "cpu", (Findings(),)).is_conformant


def test_a_checkout_that_is_not_installed_has_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("acceptor.backends.conformance.findings.version", missing)
    assert Record(("reference",), "cpu", ()).versions["acceptor"] == "not installed"


@pytest.mark.parametrize("other", [STRICT_ONLY, [*REFERENCE, "--beside", "reference"]])
def test_the_record_of_another_run_is_not_continued(
    other: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    Record(("reference",), "cpu", (Findings(),)).write(path)
    assert main([*other, "--json", str(path), "--continue"]) == 2
    assert "names: expected" in capsys.readouterr().err


@pytest.mark.parametrize("endless", ["/dev/zero", "nested"])
def test_a_file_that_is_no_record_is_not_continued(
    endless: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nested").write_text("[" * 10**5)
    path = str(tmp_path / endless)
    assert main([*REFERENCE, "--json", path, "--continue"]) == 2
    assert f"{path}: expected the record of a conformance run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "got"),
    [
        ("--batches=-1", "-1"),
        ("--chunk=0", "0"),
        ("--forms=-1", "-1"),
        ("--seconds=-1", "-1.0"),
        ("--seconds=nan", "nan"),
        ("--json=/no/file", "/no/file"),
        ("--json=table.md", "table.md"),
        ("--case={} --json=record.json", "--json record.json"),
        ("--case={} --continue", "--continue"),
        ("--continue", "none"),
        ("--device=meta", "meta"),
        ("--device=cuda:99", "cuda:99"),
        ("--case=", "JSONDecodeError.*"),
        ("--case={", "JSONDecodeError.*"),
        (f"--case={'[' * 10**5}", "RecursionError.*"),
        ("--case=[]", "TypeError.*"),
        ("--case={}", "KeyError.*"),
        (f"--case={SOME_CASE.replace('Strict', 'Loose')}", "AttributeError.*"),
        (f"--case={SOME_CASE.replace('coupled', 'x')}", "TypeError.*"),
        (f"--case={SOME_CASE.replace('slots', 'x')}", "'x'"),
        (f"--case={SOME_CASE.replace('lm', 'x')}", "'x'"),
        (f"--case={SOME_CASE.replace('[1]', '[-1]')}", "-1"),
    ],
)
def test_what_makes_no_run_is_told(flag: str, got: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Cases hold spaces, too.
    assert main([*REFERENCE, *re.split(" (?=--)", flag)]) == 2
    name = flag.partition("=")[0]
    assert re.fullmatch(f"{name}: .*expected .*, got {got}\n", capsys.readouterr().err)


def test_a_policy_that_a_backend_lacks_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STRICT_ONLY, "--policy", "block", "--policy", "strict"]) == 0
    assert "unsupported" in capsys.readouterr().out
    for nothing in ([*STRICT_ONLY, "--policy", "block"], [*REFERENCE, "--batches", "0"]):
        assert main(nothing) == 1
        said = capsys.readouterr().out.splitlines()[-1]
        assert said == "INCOMPLETE: expected batches to compare, got none"


def test_a_crash_is_reported_with_its_smallest_case(capsys: pytest.CaptureFixture[str]) -> None:
    broken = ["--backend", f"{__name__}:Broken", *OPTIONS]
    assert main([*broken, "--policy", "strict"]) == 1
    printed = capsys.readouterr().out
    assert printed.endswith("\nNOT conformant\n")
    report = next(line for line in printed.splitlines() if line.startswith("    {"))
    case = Case.from_json(report)
    assert (case.num_draft_tokens, case.features) == ((0, 0), frozenset())
    assert main([*broken, "--case", case.to_json()]) == 1
    assert "RuntimeError: out of luck" in capsys.readouterr().out
    assert smallest_failure(case, Broken(), CPU) == case
    assert smallest_failure(Case(), ReferenceSampler(), CPU) is None


@pytest.mark.parametrize("name", ["nobody", "acceptor.nowhere:Sampler", "acceptor.core:Nothing"])
def test_an_unknown_backend_is_an_error(name: str) -> None:
    with pytest.raises(UnavailableError, match="backend"):
        load_backend(name)


def test_an_interrupt_ends_it_cleanly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Campaign, "run", Mock(side_effect=KeyboardInterrupt))
    assert main(REFERENCE) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_dead_worker_ends_it_with_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Campaign.run
    monkeypatch.setattr(Campaign, "run", lambda *a, **b: chain([(1, (SOME,))], run(*a, **b)))
    assert main(["--backend", "os:abort", "--workers", "2", *OPTIONS]) == 2
    shown = capsys.readouterr()
    assert shown.err == "workers: expected processes that last, got one that died\n"
    assert "| batches | 2 |" in shown.out


def test_pytest_holds_a_backend_to_the_contract(tmp_path: Path) -> None:
    # As others have it: in a folder of the package's name, which that of a clone need not be.
    (tmp_path / "acceptor").symlink_to(Path(__file__).parents[2])
    command = [sys.executable, "-m", "pytest", "-p", "acceptor.backends.conformance.pytest_plugin"]
    command += ["--pyargs", "acceptor.backends.conformance", "--backend", "reference"]
    command += ["--batches", "1", "--max-vocab-size", "40", "-k", "strict or refused", "-q"]
    finished = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout
    assert "unexplained" in finished.stdout
