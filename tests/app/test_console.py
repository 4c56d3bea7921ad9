"""Text reaches a pipe, however narrow the environment says that it is."""

import pytest

from acceptor.app.console import new_console


@pytest.mark.parametrize("columns", ["0", "1", "80"])
def test_no_text_is_lost_in_a_pipe(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    new_console().print("ROMEO: [b]Come")
    assert capsys.readouterr().out.split() == ["ROMEO:", "[b]Come"]
