"""What all tests agree on."""

from hypothesis import settings

# The same examples every time, and no verdict that depends on how fast the machine is today.
settings.register_profile("acceptor", derandomize=True, deadline=None)
settings.load_profile("acceptor")
