# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over the WebDriver protocol with the standard library. Loopback only."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

import harness


def is_installed() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """Starts a browser. REQUIRES: is_installed(). Use as a context manager."""

    def __init__(self, width: int = 1280, height: int = 900, nice: int = 0):
        self.profile = tempfile.mkdtemp(prefix="browser-")
        self.driver = subprocess.Popen(["nice", "-n", str(nice), "chromedriver", "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}"
                break
        flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                 "--no-proxy-server", f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
        options = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self.session = "/session/" + answer["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._send("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def _send(self, method: str, path: str, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=harness.DEADLINE_S) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        self._send("POST", self.session + "/url", {"url": url})

    def run(self, script: str, *arguments):
        """Runs the body of a function in the page and returns its result."""
        return self._send("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments):
        """The same; the last argument of the function is a callback that gets the result."""
        return self._send("POST", self.session + "/execute/async", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, *arguments):
        """Waits until an expression is true in the page, and returns its value. It is evaluated for each frame."""
        script = """const done = arguments[arguments.length - 1], check = () => {
          let value = null;
          try { value = (() => %s)(); } catch (error) { value = null; }
          value ? done(value) : setTimeout(check, 20);
        };
        check();""" % condition
        self._send("POST", self.session + "/timeouts", {"script": harness.DEADLINE_S * 1000})
        return self.run_async(script, *arguments)

    def keys(self, text: str) -> None:
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._send("POST", self.session + "/actions",
                   {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def command(self, name: str, **parameters):
        """A command of the Chrome DevTools protocol."""
        return self._send("POST", self.session + "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def look(self, dark: bool, width: int, height: int = 900, scale: float = 1) -> None:
        """Sets the colour scheme and the size of the screen."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                     mobile=False)

    def picture(self, path: pathlib.Path) -> None:
        """Writes a picture of the whole page."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        data = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def problems(self) -> list:
        """What the console of the browser reported since the last call."""
        return [entry["message"] for entry in self._send("POST", self.session + "/se/log", {"type": "browser"})]
