"""Operators around the pools, as pages and NumPy functions: enough for a small training step.

    pooltide cc --operators "$(python3 -c 'import pooltide.examples.operators as o; print(*o.__path__)')" …

The signatures are CANN's as far as we know them; those of aclnnConstantPadNd and aclnnThresholdBackward were
compared with CANN's public pages. The rules are ours: CANN may take fewer calls, or more. Sums of half types
are float32.
"""
