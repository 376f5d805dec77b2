"""Tools to accept or reject an operator: cases, golden data, verdicts, comparison, reports, pictures."""
