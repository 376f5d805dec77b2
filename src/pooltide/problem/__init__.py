"""What is computed, without data: geometry, the canonical problem, rounding, and the lowering of calls."""
