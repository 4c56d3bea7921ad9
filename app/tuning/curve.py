"""The curve of `acceptor tune`: tokens per second against K, and crosses where that was checked."""

from ..bench.picture import Line, Picture
from .results import TuneResults
from .tables import unit


def curve(results: TuneResults) -> Picture:
    """One panel per concurrency, one line per policy; plain decoding is a level."""
    panels = {f"{one} at a time": _lines(results, one) for one in results.concurrencies}
    tokens = unit(results).replace("tok/s", "tokens per second")
    return Picture(x_label="K, tokens per draft", y_label=f"output {tokens}", panels=panels)


def _lines(results: TuneResults, concurrency: int) -> list[Line]:
    measured = {check.prediction: check.measured for check in results.checks}
    predicted: dict[str, list[tuple[int, float]]] = {}
    checked: dict[str, list[tuple[int, float]]] = {}
    for one in sorted(results.predictions, key=lambda one: one.num_spec_tokens):
        if one.concurrency == concurrency:
            length = one.num_spec_tokens
            predicted.setdefault(one.policy, []).append((length, one.tokens_per_second))
            if one in measured:
                checked.setdefault(one.policy, []).append((length, measured[one]))
    longest = max(one.num_spec_tokens for one in results.predictions)
    lines = []
    for name, points in predicted.items():
        place = [*results.policies].index(name) if name in results.policies else None
        color = {"color": "black" if place is None else f"C{place}"}
        if place is None:
            level = {**color, "linestyle": "--", "linewidth": 1}
            lines.append(Line(name=name, points=[*points, (longest, points[0][1])], look=level))
        else:
            lines.append(Line(name=name, points=points, look=color))
        if name in checked:
            cross = {**color, "marker": "x", "linestyle": ""}
            lines.append(Line(name=f"{name}, measured", points=checked[name], look=cross))
    return lines
