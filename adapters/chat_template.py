"""Chat templates: turn messages into a prompt by the Jinja template that comes with a model.

A template is an untrusted program. It runs in Jinja's sandbox, without private attributes, files
and other templates, and in a child process with limits on time, memory and output.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ..core.errors import InvalidInputError, UnavailableError
from .confinement import confinement
from .error_text import unfit
from .json_object import read_json, read_text

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
Message = Mapping[str, Any]


@frozen(eq=False)
class ChatTemplate:
    """A template that has been compiled once, to check it.

    Attributes:
        source: the file and the field in it, for errors.
    """

    source: str
    text: str

    @classmethod
    def load(cls, directory: Path) -> "ChatTemplate | None":
        """The directory's default template: chat_template.jinja, else the one in the config.

        Raises:
            CheckpointError: it is not a valid template.
        """
        file = directory / TEMPLATE_FILE
        if os.path.lexists(file):
            return cls.compile(str(file), read_text(file))
        file = directory / CONFIG_FILE
        text = _template_in_config(file)
        return None if text is None else cls.compile(f"{file}: chat_template", text)

    @classmethod
    def compile(cls, source: str, text: str) -> "ChatTemplate":
        """Check that a text is a template, in a process whose memory is limited.

        Raises:
            CheckpointError: it is not a valid template.
            UnavailableError: this system cannot limit a process's memory.
        """
        if sys.platform != "linux":
            expected = "Linux, which limits a process's memory"
            raise unfit(source, expected, sys.platform, UnavailableError)
        reply = confinement.run("compile_template", text)
        if "error" in reply:
            raise unfit(source, "a Jinja template", reply["error"])
        return cls(source, text)

    def render(
        self,
        messages: Sequence[Message],
        special_tokens: Mapping[str, str],
        *,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """The prompt of a conversation.

        Args:
            messages: each with `role` and `content`; values that JSON can hold.
            special_tokens: as `Tokenizer.special_tokens`; the template writes them itself.
            add_generation_prompt: end with the text that opens the assistant's answer.
            variables: further variables of the template, such as `enable_thinking`.

        Raises:
            InvalidInputError: the template rejects these messages, or JSON cannot hold them.
            CheckpointError: the template fails, leaves the sandbox or exceeds a limit.
        """
        given: dict[str, object] = {"messages": messages, "tools": None, "documents": None}
        given |= special_tokens
        given |= {"add_generation_prompt": add_generation_prompt} | variables
        try:
            reply = confinement.run("render", self.text, given)
        except (TypeError, ValueError, RecursionError) as error:
            expected = "values that JSON can hold"
            raise unfit("messages", expected, error, InvalidInputError) from None
        if reply.get("kind") == "RaisedByTemplateError":
            raise InvalidInputError(f"messages: {self.source} refuses them: {reply['error']}")
        if "error" in reply:
            raise unfit(self.source, "a prompt", f"{reply['kind']}: {reply['error']}")
        prompt: str = reply["value"]
        return prompt


def _template_in_config(path: Path) -> str | None:
    """The `chat_template` field: one template, or several with names, of which `default` counts."""
    if not os.path.lexists(path):
        return None
    config = read_json(path)
    value = config.value("chat_template")
    if value is None or isinstance(value, str):
        return value
    try:
        named = {entry["name"]: entry["template"] for entry in value}
        default = named["default"]
    except (TypeError, KeyError):
        default = None
    if not isinstance(default, str):
        raise config.error("chat_template", "a template, or a list with one named default", value)
    return default
