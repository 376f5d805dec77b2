"""Golden data for ATK: an execution plugin, which ATK loads with --plugin.

    atk aclnn aclnnAvgPool2dBackward.json --plugin atk_executor.py

The api_type of the cases is the name that is registered here.
"""

from typing import Any

from atk.tasks.api_execute import register  # type: ignore[import-not-found]
from atk.tasks.api_execute.base_api import BaseApi  # type: ignore[import-not-found]

from pooltide.acceptance.hooks import execute


@register("pooltide_avg_pool2d_backward")
class AvgPool2dBackward(BaseApi):  # type: ignore[misc]
    def __call__(self, input_data: Any, with_output: bool = False) -> Any:
        return execute("aclnnAvgPool2dBackward", input_data.kwargs)
