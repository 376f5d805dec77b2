"""The facts: operators, products, dtypes, rules, and how arguments become a checked call."""
