# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over the WebDriver protocol with the standard library. Loopback only."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

import harness

PAGE = pathlib.Path(__file__).resolve().parents[2] / "cli/ui/page"


def is_installed() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


def install_packages() -> None:
    """Installs the npm packages of the page. Skips the test without npm or without its registry."""
    if not shutil.which("npm") or not shutil.which("node"):
        raise unittest.SkipTest("needs npm")
    done = subprocess.run([str(PAGE / "build"), "--packages"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 and re.search("ENOTFOUND|EAI_AGAIN|ECONNREFUSED", done.stderr + done.stdout):
        raise unittest.SkipTest("npm cannot fetch packages here")
    assert done.returncode == 0, done.stderr


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

    def touch(self, *fingers) -> None:
        """Moves fingers over the screen at the same time. A finger is a list of points, all of the same length."""
        def strokes(points):
            (x, y), *rest = points
            yield {"type": "pointerMove", "duration": 0, "x": x, "y": y}
            yield {"type": "pointerDown", "button": 0}
            for x, y in rest:
                yield {"type": "pointerMove", "duration": 40, "x": x, "y": y}
            yield {"type": "pointerUp", "button": 0}
        self._send("POST", self.session + "/actions", {"actions": [
            {"type": "pointer", "id": f"finger {i}", "parameters": {"pointerType": "touch"}, "actions": list(strokes(points))}
            for i, points in enumerate(fingers)]})

    def inaccessible(self) -> list:
        """What axe-core finds in the page as it looks now. Skips the test where axe-core cannot be installed."""
        install_packages()
        self.run((PAGE / "node_modules/axe-core/axe.min.js").read_text())
        # Incomplete: axe-core cannot decide, because it cannot see what a reader hears or what is behind a text. It cannot
        # measure the contrast of text over a picture, and of text that is scrolled out of its box.
        return self.run_async("""const done = arguments[arguments.length - 1];
          axe.run().then((report) => done([...report.violations, ...report.incomplete.filter((one) => one.id !== "color-contrast")]
            .map((one) => one.id + ": " + one.nodes.map((node) => node.html.slice(0, 100) + node.failureSummary).join("; "))));""")

    def check_looks(self, test: unittest.TestCase) -> None:
        """Checks the page in light and dark, on a wide and a narrow screen."""
        for dark, width in ((False, 1280), (True, 1280), (False, 360), (True, 360)):
            with test.subTest(dark=dark, width=width):
                self.look(dark, width)
                wide = self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                test.assertEqual(wide, 0, "no sideways scrolling")
                test.assertEqual(self.inaccessible(), [])

    def watch(self, selector: str) -> None:
        """Begins to record when the number of elements that match grows, and how long the machine takes for a reference: a
        request to the thread of the server that sends the messages, and a frame of this browser."""
        self.run("""const count = () => document.querySelectorAll(arguments[0]).length;
          window.watched = {began: Date.now(), first: count(), shown: [], references: []};
          new MutationObserver(() => {
            for (const now = count(); watched.first + watched.shown.length < now;) watched.shown.push(Date.now());
          }).observe(document.body, {childList: true, subtree: true});
          const reference = async () => {
            const began = Date.now(), job = new URLSearchParams(location.search).get("job");
            await fetch("/api/steps?from=1&to=1" + (job ? "&job=" + encodeURIComponent(job) : ""));
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            watched.references.push([began, Date.now()]);
            setTimeout(reference, 50);
          };
          reference();""", selector)

    def check_delays(self, test: unittest.TestCase, happened: list, count: int) -> None:
        """Checks that what happened at these times, in milliseconds since 1970, was shown within a second: `count` elements since
        `watch`. A busy machine delays the messages as it delays the reference of `watch`, so the slowest reference of that time
        comes on top. Times before `watch` are only counted."""
        watched = self.run("return window.watched")
        report = []
        shown_of = slice(watched["first"], watched["first"] + count)
        for at, shown in zip(happened[shown_of], watched["shown"][:count], strict=True):
            if at < watched["began"]:
                continue
            slowest = max((end - begin for begin, end in watched["references"] if begin <= shown and end >= at), default=0)
            report.append(f"{shown - at:.0f} ms (reference {slowest} ms)")
            test.assertLess(shown - at, 1000 + slowest, report)
        print(f"shown after {', '.join(report)}")
        test.assertTrue(report)

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
