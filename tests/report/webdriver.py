"""A headless Chromium, driven through chromedriver over the WebDriver protocol with the standard library alone."""

import base64
import http.client
import json
import re
import shutil
import subprocess
from contextlib import contextmanager

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = " and ".join(name for name, path in (("chromium", CHROMIUM), ("chromedriver", DRIVER)) if path is None)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"]


class Browser:
    """One window."""

    def __init__(self, port, folder):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.session = ""
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={folder}"]}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        found = self.call("POST", "session", capabilities={"alwaysMatch": capabilities})
        self.session = f"session/{found['sessionId']}"

    def call(self, verb, command, **body):
        """Send a command and return its value."""
        text = json.dumps(body) if verb == "POST" else None
        path = f"/{self.session}/{command}".replace("//", "/").rstrip("/")
        self.connection.request(verb, path, text, {"Content-Type": "application/json"})
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value

    def open(self, url):
        self.call("POST", "url", url=url)

    def run(self, script, *arguments):
        """Return the value of a JavaScript expression, in which `arguments` are these."""
        return self.call("POST", "execute/sync", script=f"return ({script})", args=list(arguments))

    def log(self):
        """Return what the console and the page's policy had to say since the last call."""
        return [entry["message"] for entry in self.call("POST", "se/log", type="browser")]

    def tell(self, command, **parameters):
        """Send a command of Chromium's own protocol."""
        return self.call("POST", "goog/cdp/execute", cmd=command, params=parameters)

    def resize(self, width, height=900, scale=1):
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.tell("Emulation.setDeviceMetricsOverride", **size)

    def use_colours(self, scheme):
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self):
        """Return the whole page as PNG."""
        found = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])


@contextmanager
def started(folder):
    """Start the driver and a browser whose profile is in a folder; both end with the block."""
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with driver:  # which closes the pipe and waits
        try:
            port = next(
                int(found[1]) for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line))
            )
            browser = Browser(port, folder)
            try:
                yield browser
            finally:
                browser.call("DELETE", "")
                browser.connection.close()
        finally:
            driver.terminate()
