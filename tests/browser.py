"""A headless Chromium driven over the DevTools protocol, through the pair of pipes that Chromium itself offers."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time

from tests.requirements import lacking

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


def need_chromium():
    """Path of the browser; skip, or fail where the tests must run."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        reason = "no Chromium here: apt-get install chromium"
        lacking(reason, required_by="TRACE_REQUIRE_BROWSER")
    return found


class Browser:
    """One page of one browser. ``events`` holds all that the page reported since it was opened."""

    def __init__(self, profile):
        self.log = profile / "chromium.log"
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        out_of_the_way = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (commands, answers)]
        log = (os.POSIX_SPAWN_OPEN, 2, str(self.log), os.O_WRONLY | os.O_CREAT, 0o600)
        pipes = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in zip(out_of_the_way, (3, 4), strict=True)]
        program = [need_chromium(), *FLAGS, f"--user-data-dir={profile / 'user'}"]
        self._pid = os.posix_spawn(program[0], program, os.environ, file_actions=[log, *pipes], setpgroup=0)
        for fd in (commands, answers, *out_of_the_way):
            os.close(fd)
        self._buffer, self._sent, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def call(self, method, seconds=60, **parameters):
        """Send one command and return its result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == self._sent, seconds)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url, width=1280, dark=False):
        """Load a page at a width and wait until it is there."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        if not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._until(lambda m: m.get("method") == "Page.loadEventFired", 60)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path):
        """The whole page, whatever its height."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self):
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])

    def _until(self, wanted, seconds):
        deadline = time.monotonic() + seconds
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
                chunk = os.read(self._read, 1 << 20) if ready else b""
                assert chunk, f"Chromium does not answer:\n{self.log.read_text(errors='replace')[-2000:]}"
                self._buffer += chunk
            raw, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(raw)
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message
