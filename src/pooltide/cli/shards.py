"""The option --shard of golden and compare."""

from __future__ import annotations

from typing import Any

import click

from ..acceptance.manifest import Shard, read_shard


class _ShardType(click.ParamType):  # type: ignore[type-arg]
    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        if isinstance(value, Shard):
            return value
        try:
            return read_shard(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


shard_option = click.option(
    "--shard", type=_ShardType(), metavar="I/N", help="Only share I of N of the cases; merge joins them."
)
