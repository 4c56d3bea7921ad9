"""The pages about how CuPy reads show what the records say, and the profiler is read as it is."""

import json
import shutil
import subprocess
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from acceptor.core import UnavailableError
from kit.cupy_reads import counted
from kit.cupy_reads.counted import joined, launches, watch
from kit.cupy_reads.tables import DATA, PAGES, fastest, share

READS, WAYS = (
    json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["lines"]
    for name in ("cupy-reads", "cupy-ways")
)
PAGE, TRIED = (
    " ".join((DATA.parent / f"{name}.md").read_text(encoding="utf-8").split())
    for name in ("backends-cupy", "cupy-measurements")
)

COLUMNS = ("ID", "Kernel Name", counted.FROM_MEMORY, counted.FROM_CACHE, counted.PASSES)
SAID = f"""==PROF== Connected to process 7
{",".join(f'"{name}"' for name in COLUMNS)}
"","","byte","sector","pass"
"0","pieces","2,123,456","1,000","1"
"1","pieces_end(const Params)","44","10","1"
"""


def _refused(line: dict[str, Any]) -> float:
    """Bytes of the pairs that block verification refuses."""
    drafts = line["num_reqs"] * line["num_spec_tokens"]
    row = line["every"] / (2 * drafts + line["num_reqs"])
    return float(2 * row * (drafts - line["accepted"])) if line["policy"] == "block" else 0.0


def _read(policy: str, num_reqs: int, top_k: int = 0, **more: object) -> list[dict[str, Any]]:
    wanted = {"policy": policy, "num_reqs": num_reqs, **more}
    return [
        line
        for line in READS
        if line["recipe"]["temperature"] == 0.8
        and (line["recipe"]["top_k"], line["recipe"]["top_p"]) == (top_k, 0.9 if top_k else 1.0)
        and all(line[name] == value for name, value in wanted.items())
    ]


def _timed(policy: str, num_reqs: int, drafts: int = 3) -> dict[str, Any]:
    return next(
        line
        for line in WAYS
        if (line["policy"], line["num_reqs"], line["num_spec_tokens"]) == (policy, num_reqs, drafts)
    )


def test_logits_cross_memory_once_and_refused_pairs_once_more() -> None:
    for line in READS:
        if line["recipe"]["temperature"] < 1:
            beside = max(0.015 * line["every"], 1e5)
            assert line["memory"] <= line["every"] + _refused(line) + beside, line
    some = _read("block", 256, 50)
    refused = sum(_refused(line) / line["every"] for line in some) / len(some)
    again = f"{share(some, 'memory'):.2f} of all rows where {refused:.2f} are of refused pairs"
    assert again in PAGE
    wide = share(_read("block", 16, way="wide"), "memory")
    assert f"by the wide kernel without filters at R = 16 ({wide:.2f})" in PAGE


def test_flat_filtered_rows_are_the_exception() -> None:
    flat = [line for line in READS if line["recipe"]["temperature"] == 1.5]
    keys = {(line["policy"], line["way"], line["num_reqs"]) for line in flat}
    shares = {
        key: share((f for f in flat if (f["policy"], f["way"], f["num_reqs"]) == key), "memory")
        for key in keys
    }
    many = [read for (_, _, num_reqs), read in shares.items() if num_reqs == 256]
    reads = f"{min(shares.values()):.1f} to {max(shares.values()):.1f} times all rows from memory"
    assert f"{reads}, {min(many):.1f} to {max(many):.1f} at R = 256" in PAGE


def test_many_requests_rows_behind_an_end_are_hardly_read() -> None:
    pieces = [line for line in READS if line["num_reqs"] == 256 and "pieces" in line["way"]]
    read = [line["memory"] / line["every"] for line in pieces]
    assert f"pieces read {min(read):.2f} to {max(read):.2f}" in PAGE
    assert all(line["memory"] - line["judged"] <= 0.02 * line["every"] for line in pieces)


def test_what_ways_take_is_what_the_record_says() -> None:
    assert not any(line["different"] for line in WAYS)
    alone, beside = (median(_timed("strict", 1, drafts)["times"]["wide"]) for drafts in (0, 3))
    assert f"alone, a strict row takes {alone:.1f} µs" in TRIED
    assert f"beside it take {beside - alone:.1f} together" in TRIED
    took = []
    for num_reqs in (64, 88):
        line = _timed("strict", num_reqs)
        best = median(line["times"][fastest(line, "pieces")])
        took.append(f"{best:.1f} for {median(line['times']['wide']):.1f}")
    read = share(_read("strict", 64, way="pieces 30"), "memory")
    assert (
        f"pieces read {read:.2f} of all rows there and take {took[0]}, at R = 88 {took[1]}" in TRIED
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_are_what_the_records_say(name: str) -> None:
    record = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    assert (DATA / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](record)


def test_what_the_profiler_says_is_added_up_for_each_call() -> None:
    case = {"kernels": ["pieces", "pieces_end"], "every": 2}
    assert list(joined([case], SAID)) == [{**case, "memory": 2_123_500, "cache": 32_320}]
    with pytest.raises(UnavailableError, match="expected 1 launches"):
        joined([{"kernels": ["pieces"]}], SAID)


def test_a_kernel_that_ran_twice_for_its_counters_is_not_counted() -> None:
    with pytest.raises(UnavailableError, match="one pass"):
        list(launches(SAID.replace('"1"\n', '"2"\n')))


def test_a_profiler_that_is_missing_or_may_not_read_counters_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UnavailableError, match="ncu"):
        watch((), tmp_path)

    def refuse(command: list[str], **_: object) -> SimpleNamespace:
        log = Path(command[command.index("--log-file") + 1])
        log.write_text("==ERROR== ERR_NVGPUCTRPERM - no permission\n")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(shutil, "which", lambda _: "/ncu")
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(UnavailableError, match="ERR_NVGPUCTRPERM"):
        watch((), tmp_path)
