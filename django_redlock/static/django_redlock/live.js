/* Keeps an open page up to date: fetches it again and replaces the rows of the list, or what a page of one lock shows.
   The rest, such as the bar of actions, belongs to the admin or its theme and stays. Stops while something is selected.
   Without JavaScript the Refresh link does the same. No eval and no inline code: any CSP allows it. */
"use strict";
{
  const live = document.getElementById("redlock-live");
  const pause = document.getElementById("redlock-pause");
  const interval = 1000 * Number(live?.dataset.refresh);
  const parts = ".redlock-tabs, .redlock-seen, .redlock-none, .paginator";
  let timer = null;

  const boxes = () => [...live.querySelectorAll("input.action-select")];
  const chosen = () => boxes().filter((box) => box.checked);

  function replace(fresh) {
    const table = live.querySelector("#result_list");
    const newer = fresh.querySelector("#result_list");
    const [mine, theirs] = [live, fresh].map((page) => [...page.querySelectorAll(parts)]);
    if (!table || !newer || mine.length !== theirs.length) return live.replaceChildren(...fresh.childNodes);
    mine.forEach((part, index) => part.replaceWith(theirs[index]));
    [...table.tBodies].forEach((body) => body.remove());
    table.append(...newer.tBodies); // a theme may have a body for each row
  }

  /* ── selection: the same as Django's script, for rows that come and go ── */
  function count() {
    const counter = live.querySelector(".action-counter");
    const sentence = window.ngettext?.("%(sel)s of %(cnt)s selected", "%(sel)s of %(cnt)s selected", chosen().length);
    const numbers = { sel: chosen().length, cnt: boxes().length };
    if (counter && sentence) counter.textContent = window.interpolate(sentence, numbers, true);
    const all = live.querySelector("#action-toggle");
    if (all) all.checked = numbers.sel > 0 && numbers.sel === numbers.cnt;
    boxes().forEach((box) => box.closest("tr").classList.toggle("selected", box.checked));
  }

  let pressed = false; // a click that has begun must end on the same row
  live?.addEventListener("pointerdown", () => (pressed = true));
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => (pressed = false));

  live?.addEventListener("change", ({ target }) => {
    if (target.id === "action-toggle") boxes().forEach((box) => (box.checked = target.checked));
    count();
  });

  /* ── refresh ── */
  let request = new AbortController();

  async function refresh() {
    request.abort(); // an older answer must not overwrite a newer one
    const { signal } = (request = new AbortController());
    const page = await fetch(location.href, { credentials: "same-origin", redirect: "error", cache: "no-store", signal });
    if (!page.ok) throw new Error(page.status);
    const fresh = new DOMParser().parseFromString(await page.text(), "text/html").getElementById("redlock-live");
    if (pressed || chosen().length) return; // meanwhile
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const same = (each) => each.getAttribute("href") === focused.getAttribute("href") && each.value === focused.value;
    const top = window.scrollY;
    replace(document.adoptNode(fresh));
    if (focused && !focused.isConnected) [...live.querySelectorAll(focused.localName)].find(same)?.focus({ preventScroll: true });
    window.scrollTo({ top, behavior: "instant" });
    count();
  }

  async function tick() {
    clearTimeout(timer);
    if (!document.hidden && pause.getAttribute("aria-pressed") !== "true" && !chosen().length) {
      try {
        await refresh();
        live.classList.remove("redlock-stale");
      } catch (error) {
        if (error.name !== "AbortError") live.classList.add("redlock-stale"); // logged out, or no server: greyed out
      }
    }
    live.dispatchEvent(new CustomEvent("redlock:tick", { bubbles: true }));
    clearTimeout(timer); // of a tick that has begun meanwhile
    timer = setTimeout(tick, interval);
  }

  function countDown() {
    live.querySelectorAll(".redlock-left").forEach((left) => {
      const bar = left.querySelector("progress");
      bar.value = Math.max(0, bar.value - 1);
      if (bar.value < 60) left.querySelector("span").textContent = `${Math.ceil(bar.value)} s`;
      left.classList.toggle("redlock-low", bar.value < bar.max / 3);
    });
  }

  if (live && interval) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
      request.abort(); // a paused page stays as it is
      tick();
    });
    document.getElementById("redlock-refresh").addEventListener("click", (event) => {
      if (chosen().length) return; // loads the page
      event.preventDefault();
      refresh().catch((error) => error.name === "AbortError" || location.reload());
    });
    document.addEventListener("visibilitychange", () => document.hidden || tick());
    setInterval(countDown, 1000);
    timer = setTimeout(tick, interval);
  }
}
