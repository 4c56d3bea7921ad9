"""Typed errors, one sentence each, raised before any work is lost."""


class AcceptorError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidInputError(AcceptorError, ValueError):
    """A value, shape, dtype or device is not what the named argument allows."""


class UnavailableError(AcceptorError):
    """A backend, policy or optional dependency is unknown, missing or unsupported here."""


class OutOfMemoryError(AcceptorError):
    """A device has less memory left than weights, caches or a step need."""


class CheckpointError(AcceptorError):
    """A model or tokenizer directory is missing, damaged or not what its config says."""


class ConfigError(AcceptorError):
    """A configuration file or flag is unknown, malformed or contradictory."""
