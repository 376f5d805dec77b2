"""For those who accept operators: cases, golden data, verdicts, comparison, reports, pictures."""
