"""Debian's Chromium, headless, through Selenium."""

import contextlib
import json
import sysconfig
import tempfile
import urllib.request
from pathlib import Path
from typing import Self

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from websocket import create_connection

from tests.support.service import find

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic disable-dev-shm-usage no-first-run disable-background-networking "
    "disable-component-update disable-sync force-color-profile=srgb hide-scrollbars"
)
AXE = Path(sysconfig.get_path("purelib")) / "axe_core_python" / "axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]  # Django's own search form breaks a best practice beyond these
DESKTOP, PHONE = (1280, 800), (390, 844)


class Chromium:
    """One Chromium process for the session, with its own profile, which is deleted at the end."""

    def __init__(self) -> None:
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        program = find("chromium", package="chromium")
        driver = find("chromedriver", package="chromium-driver")
        profile = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True))
        options = webdriver.ChromeOptions()
        options.binary_location = program
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in (*FLAGS.split(), f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        self.driver = webdriver.Chrome(options, Service(driver))
        self._ends.callback(self.driver.quit)
        self.driver.set_page_load_timeout(90)
        self.driver.set_script_timeout(90)
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.close()


class Browser:
    """A window of its own context, as in a new profile: no cookies, storage, cache, connections or emulation."""

    def __init__(self, chromium: Chromium, site: str) -> None:
        self.driver = chromium.driver
        self.site = site

    def __enter__(self) -> Self:
        self._before = self.driver.current_window_handle
        address = self.driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
        with urllib.request.urlopen(f"http://{address}/json/version", timeout=60) as version:
            url = json.load(version)["webSocketDebuggerUrl"]
        self._devtools = create_connection(url, timeout=60, suppress_origin=True)
        context = self._send("Target.createBrowserContext", disposeOnDetach=True)
        made = self._send("Target.createTarget", url="about:blank", **context)
        self.driver.switch_to.window(made["targetId"])
        self.size(*DESKTOP)
        return self

    def __exit__(self, *exc: object) -> None:
        self.driver.get_log("browser")  # the next window has a log of its own
        self.driver.switch_to.window(self._before)
        self._devtools.close()  # with its context

    def _send(self, method: str, **params: object) -> dict[str, str]:
        """Send a command to the browser. chromedriver sends commands to windows only."""
        self._devtools.send(json.dumps({"id": 1, "method": method, "params": params}))
        while (reply := json.loads(self._devtools.recv())).get("id") is None:
            pass
        return reply["result"]

    # ── what it does ─────────────────────────────────────────────────────────────────────────

    def log_in(self, session: str) -> None:
        """Log in as a user, by the session's cookie."""
        self.open("/admin/login/")
        self.driver.add_cookie({"name": "sessionid", "value": session})

    def open(self, path: str) -> None:
        """Load a page completely. On a busy machine the driver may return while the page is still loading."""
        self.script("window.isBefore = true")
        self.driver.get(self.site + path)
        self.until(lambda: self.script("return !window.isBefore && document.readyState === 'complete'"))

    def complaints(self) -> list[str]:
        """Return what the browser has blocked, and the errors of scripts and loads."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        return [message for message in said if "/favicon.ico" not in message]

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def emulate(self, scheme: str | None) -> None:
        """Emulate the system's `dark` or `light` theme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def scripting(self, on: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not on})

    def picture(self, path: Path) -> None:
        """Return a screenshot of the page when all animations have ended."""
        self.until(lambda: self.script("return document.getAnimations().every(each => each.playState === 'finished')"))
        self.driver.save_screenshot(str(path))

    def violations(self) -> list[str]:
        """Return serious and critical violations of WCAG 2.1 AA that axe-core finds."""
        self.script(AXE.read_text())
        found = self.driver.execute_async_script(f"axe.run(document, {{runOnly: {WCAG}}}).then(arguments[0])")
        serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {node['html'][:200]}" for each in serious for node in each["nodes"]]

    # ── looking and waiting ──────────────────────────────────────────────────────────────────

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def press(self, selector: str) -> None:
        """Click an element of a list that a refresh may replace at any time."""
        self.until(lambda: self.one(selector).click() is None)

    def names(self) -> list[str]:
        """Return the locks that the list shows."""
        return self.script("return [...document.querySelectorAll('a.redlock-name')].map(link => link.title)")

    def script(self, text: str, *args: object):
        return self.driver.execute_script(text, *args)

    def until(self, condition, seconds: float = 60):
        """Return the first true value of `condition()`, whose errors on a page that is just changing are ignored."""
        return WebDriverWait(self.driver, seconds, 0.02, [WebDriverException]).until(lambda _: condition())

    def arrive(self, selector: str) -> None:
        """Wait until a page with such an element has loaded completely."""
        self.until(lambda: self.all(selector) and self.script("return document.readyState === 'complete'"))

    def refreshed(self, times: int = 1) -> None:
        """Wait for so many refreshes from now on."""
        self.script(
            "window.seen = 0; document.addEventListener('redlock:tick', () => window.seen++)"
            if not self.script("return 'seen' in window")
            else "window.seen = 0"
        )
        self.until(lambda: self.script("return window.seen") >= times)
