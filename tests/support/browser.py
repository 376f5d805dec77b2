"""A headless Chromium that tests drive: pages of a given size, keys, mouse, touch, colours, pictures.

Chromium takes commands and gives answers through two pipes (--remote-debugging-pipe): JSON texts, each
ended by a null byte. So no port is opened and no package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: chromium is not installed (tools/system-packages installs it)"
)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "PageDown": 34,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


class Browser:
    """One page. Every answer must come within a minute."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        read, self._commands = os.pipe()
        self._answers, write = os.pipe()
        script = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        command = ["bash", "-c", script, CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self._number, self._session, self._buffer = 0, "", b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def close(self) -> None:
        os.close(self._commands)
        self._process.terminate()
        self._process.wait(30)
        os.close(self._answers)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._answer()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def _answer(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 1 << 20)
            assert part, "chromium has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def open(self, page: Path, width: int = 1280, *, dark: bool = False, fragment: str = "") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{page}{fragment}")
        self.wait('document.readyState === "complete" && location.protocol === "file:"')

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + 60
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys: names such as Tab, or characters."""
        for key in keys:
            text = {} if key in _KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
            code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def move(self, selector: str) -> None:
        """Moves the mouse over an element."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._middle(selector))

    def click(self, selector: str) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **self._middle(selector)
            )

    def tap(self, selector: str) -> None:
        """Touches an element with a finger."""
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[self._middle(selector)])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.call("Emulation.setTouchEmulationEnabled", enabled=False)

    def _middle(self, selector: str) -> dict[str, float]:
        script = f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center", inline: "center"}}); const r = e.getBoundingClientRect();
            return {{x: r.x + r.width / 2, y: r.y + r.height / 2}}; }})()"""
        place: dict[str, float] = self.evaluate(script)
        return place

    def overflow(self) -> list[str]:
        """The elements that reach beyond the right edge of the page."""
        script = """[...document.querySelectorAll("body *")].filter(e => e.getClientRects().length
            && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
            .map(e => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`)"""
        found: list[str] = self.evaluate(script)
        wide = self.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return [*found, "the page scrolls"] if wide else found

    def picture(self, path: Path) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))
