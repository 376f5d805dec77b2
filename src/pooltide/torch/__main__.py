"""`python -m pooltide.torch`: prints the status."""

from . import status

print(status())
