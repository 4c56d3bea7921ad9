"""What the proof claims, judged by a record."""

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from kit.proof.cases import ONE_HOT
from kit.proof.exact import EXACT
from kit.proof.goodness import ALPHA

Record = dict[str, Any]


@frozen
class Claim:
    """One line of the summary."""

    name: str
    cases: int
    worst: str
    limit: str
    holds: bool


def claims(record: Record) -> list[Claim]:
    """Every claim that the record has something to say about."""
    return [*_exact(record), *_losses(record), *_samples(record), *_others(record)]


def _exact(record: Record) -> Iterator[Claim]:
    for lossless, name in ((True, "lossless laws are exact"), (False, "lossy laws are not")):
        errors = [
            max(row["first"], row["joint"], row["conditional"])
            for row in record.get("exact", ())
            if row["lossless"] is lossless
        ]
        if errors and lossless:
            yield _at_most(name, errors, EXACT)
        elif errors:
            yield _above(name, errors, 1e-6)


def _losses(record: Record) -> Iterator[Claim]:
    gaps = [
        abs(row["enumerated"] - row["reported"])
        for row in record.get("losses", ())
        if row["policy"] != "fly" or row["drafter"] in ONE_HOT
    ]
    if gaps:
        # The record has four digits.
        yield _at_most("lossy policies report what they do", gaps, 1e-4)


def _samples(record: Record) -> Iterator[Claim]:
    for lossless, name in (
        (True, "samples of lossless policies follow the target"),
        (False, "samples of lossy ones do not"),
    ):
        p_values = [
            min(test["p_chi_square"], test["p_g"])
            for row in record["samples"]
            for view, test in row["tests"].items()
            if row["lossless"] is lossless and (lossless or view == "joint")
        ]
        if p_values and lossless:
            yield _above(name, p_values, ALPHA / len(p_values))
        elif p_values:
            yield _at_most(name, p_values, ALPHA)
    p_values = [min(row["p_chi_square"], row["p_g"]) for row in record["large"]]
    if p_values:
        yield _above("151,936 nearly equal tokens", p_values, ALPHA / len(p_values))


def _others(record: Record) -> Iterator[Claim]:
    yield _at_most("edges: wrong requests", [row["wrong"] for row in record["edges"]], 0)
    excess = [row["value"] / (row["limit"] or 0.5) for row in record.get("mutants", ())]
    if excess:
        yield _above("planted bugs are caught: measure / limit", excess, 1)
    gains = [row["gain"] / row["gain_error"] for row in record.get("lengths", ())]
    if gains:
        # The expectation is at least 0 for any pair; a mean over drafts is not quite that.
        yield _above("block accepts more on the bundled pair, standard errors", gains, -4)


def _at_most(name: str, values: list[float], limit: float) -> Claim:
    worst = max(values)
    return Claim(name, len(values), f"{worst:.2g}", f"≤ {limit:.2g}", worst <= limit)


def _above(name: str, values: list[float], limit: float) -> Claim:
    worst = min(values)
    return Claim(name, len(values), f"{worst:.2g}", f"> {limit:.2g}", worst > limit)
