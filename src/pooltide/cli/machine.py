"""What this machine is, for reports and benchmarks."""

from __future__ import annotations

from pathlib import Path


def processor() -> str:
    """The name of the processor, or "" where Linux does not say it."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else ""
