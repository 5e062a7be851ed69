/* Keeps an open page up to date: fetches the page again and copies the changes row by row, so that selection, focus and
   scroll position stay. Without JavaScript the Refresh link does the same. No eval and no inline code: any CSP allows it. */
"use strict";
{
  const live = document.getElementById("redlock-live");
  const pause = document.getElementById("redlock-pause");
  const interval = 1000 * Number(live?.dataset.refresh);
  let timer = null;

  const rowKey = (row) => row.querySelector("a.redlock-name")?.getAttribute("href");

  /* Make `old` look like `fresh`, touching only what differs. */
  function adopt(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    const same = old.nodeName === fresh.nodeName && old.nodeType === Node.ELEMENT_NODE;
    if (!same) return old.replaceWith(fresh);
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "class") old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (old.nodeName === "TR") old.classList.toggle("selected", Boolean(old.querySelector("input.action-select:checked")));
    if (old.nodeName === "TBODY" && old.closest("#result_list")) return adoptRows(old, fresh);
    const theirs = [...fresh.childNodes];
    [...old.childNodes].slice(theirs.length).forEach((child) => child.remove());
    theirs.forEach((child, index) => (old.childNodes[index] ? adopt(old.childNodes[index], child) : old.append(child)));
  }

  function adoptRows(body, fresh) {
    const rows = [...fresh.rows];
    const wanted = new Set(rows.map(rowKey));
    [...body.rows].filter((row) => !wanted.has(rowKey(row))).forEach((row) => row.remove());
    const known = new Map([...body.rows].map((row) => [rowKey(row), row]));
    let place = body.firstElementChild;
    for (const row of rows) {
      const mine = known.get(rowKey(row));
      if (mine) adopt(mine, row);
      if (mine && mine === place) place = place.nextElementSibling;
      else body.insertBefore(mine ?? row, place);
    }
  }

  /* ── selection: the same as Django's script, for rows that come and go ── */
  const boxes = () => [...live.querySelectorAll("input.action-select")];

  function count() {
    const counter = live.querySelector(".action-counter");
    const chosen = boxes().filter((box) => box.checked).length;
    const sentence = window.ngettext?.("%(sel)s of %(cnt)s selected", "%(sel)s of %(cnt)s selected", chosen);
    if (counter && sentence) counter.textContent = window.interpolate(sentence, { sel: chosen, cnt: boxes().length }, true);
    const all = live.querySelector("#action-toggle");
    if (all) all.checked = chosen > 0 && chosen === boxes().length;
  }

  live?.addEventListener("change", ({ target }) => {
    if (target.id === "action-toggle") boxes().forEach((box) => (box.checked = target.checked));
    boxes().forEach((box) => box.closest("tr").classList.toggle("selected", box.checked));
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
    const focused = document.activeElement;
    adopt(live, document.adoptNode(fresh));
    if (focused.isConnected) focused.focus({ preventScroll: true }); // moving a row has removed the focus
    count();
  }

  async function tick() {
    clearTimeout(timer);
    if (!document.hidden && pause.getAttribute("aria-pressed") !== "true") {
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
      event.preventDefault();
      refresh().catch((error) => error.name === "AbortError" || location.reload());
    });
    document.addEventListener("visibilitychange", () => document.hidden || tick());
    setInterval(countDown, 1000);
    timer = setTimeout(tick, interval);
  }
}
