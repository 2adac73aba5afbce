// Fetches the page again when the event stream says that something happened, and now and
// then, while it can be seen. What differs is put in place; without this script the page is
// as it was when it was loaded.
"use strict";
(() => {
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  if (!main || !live) return;

  const PAUSE = 300;
  let running = false;
  let again = false;
  let pause = 0;

  const tell = (state, text) => {
    if (live.textContent !== text) live.textContent = text;
    live.className = "live " + state;
  };

  const keep = (old, fresh) => {
    const open = [...old.querySelectorAll("details[open][id]")].map((it) => it.id);
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...old.querySelectorAll("pre")].map((it) => it.scrollTop);
    old.replaceChildren(...fresh.childNodes);
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    old.querySelectorAll("pre").forEach((it, at) => (it.scrollTop = scrolled[at] || 0));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const refresh = async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      const answer = await fetch(location.href, {
        headers: { accept: "text/html" },
        cache: "no-store",
        redirect: "manual",
      });
      if (answer.type === "opaqueredirect" || answer.status === 401) {
        location.reload();
        return;
      }
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of main.querySelectorAll("[data-live]")) {
          const next = fresh.getElementById(part.id);
          if (next && next.innerHTML !== part.innerHTML) keep(part, next);
        }
        if (!source) tell("on", "Live");
      } else if (answer.status === 404) {
        tell("off", "Gone");
      }
    } catch {
      tell("off", "Not connected");
    } finally {
      // Many events in a row are one change of the page.
      pause = setTimeout(() => {
        running = false;
        if (again) {
          again = false;
          refresh();
        }
      }, PAUSE);
    }
  };

  let source = null;
  if (main.dataset.events) {
    source = new EventSource(main.dataset.events);
    source.onopen = () => {
      tell("on", "Live");
      refresh();
    };
    source.onerror = () => tell("off", "Not connected");
    source.onmessage = refresh;
  }
  const every = 1000 * Number(main.dataset.every || 0);
  if (every) {
    setInterval(() => {
      if (document.visibilityState === "visible") refresh();
    }, every);
  }
  addEventListener("pagehide", () => {
    clearTimeout(pause);
    source?.close();
  });
  // A page that comes back out of the browser's memory has no stream any more.
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
})();
