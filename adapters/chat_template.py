"""Chat templates: messages to a prompt, by the Jinja template that comes with a model.

A template is an untrusted program. It runs in Jinja's sandbox with a limited number of loop steps,
without private attributes, files and other templates.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from jinja2 import Template, TemplateError, TemplateSyntaxError

from ..core.errors import CheckpointError, InvalidInputError
from .error_text import one_line
from .json_object import read_json, read_text
from .template_sandbox import ChatEnvironment, RaisedByTemplateError

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
Message = Mapping[str, Any]

# What evaluating a stranger's expressions can raise.
_RENDER_ERRORS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


@frozen(eq=False)
class ChatTemplate:
    """A compiled template.

    Attributes:
        source: the file, and the field in it, for errors.
        environment: the sandbox.
        template: compiled in it.
    """

    source: str
    environment: ChatEnvironment
    template: Template

    @classmethod
    def load(cls, directory: Path) -> "ChatTemplate | None":
        """The directory's default template: chat_template.jinja, else the one in the config.

        Raises:
            CheckpointError: it is no template.
        """
        file = directory / TEMPLATE_FILE
        if file.exists():
            return cls.compile(str(file), read_text(file))
        file = directory / CONFIG_FILE
        text = _template_in_config(file)
        return None if text is None else cls.compile(f"{file}: chat_template", text)

    @classmethod
    def compile(cls, source: str, text: str) -> "ChatTemplate":
        """Compile a template.

        Raises:
            CheckpointError: it is no template.
        """
        environment = ChatEnvironment()
        try:
            return cls(source, environment, environment.from_string(text))
        except (TemplateSyntaxError, RecursionError) as error:
            raise CheckpointError(
                f"{source}: expected a Jinja template, got {one_line(error)}"
            ) from None

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
            messages: each with `role` and `content`.
            special_tokens: as `Tokenizer.special_tokens`; the template writes them itself.
            add_generation_prompt: end with what opens the assistant's answer.
            variables: anything else the template knows, such as `enable_thinking`.

        Raises:
            InvalidInputError: the template refuses these messages.
            CheckpointError: the template fails or leaves the sandbox.
        """
        self.environment.num_steps = 0
        try:
            return self.template.render(
                {"messages": messages, "tools": None, "documents": None}
                | dict(special_tokens)
                | {"add_generation_prompt": add_generation_prompt}
                | variables
            )
        except RaisedByTemplateError as error:
            raise InvalidInputError(
                f"messages: {self.source} refuses them: {one_line(error)}"
            ) from None
        except _RENDER_ERRORS as error:
            raise CheckpointError(
                f"{self.source}: expected a prompt, got {type(error).__name__}: {one_line(error)}"
            ) from None


def _template_in_config(path: Path) -> str | None:
    """The `chat_template` field: a template, or several with names, of which `default` is meant."""
    if not path.exists():
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
