// What happens in the browser only: clocks that tick, items that move, and what is said when the console is gone.
"use strict";
(() => {
  const words = document.body.dataset;
  const ahead = Number(words.now) - Date.now(); // the server's clock against ours
  let heard = Date.now() + ahead; // when the console was last heard of, by its clock
  let gone = ""; // the sentence that says why this page is not live; empty while it is
  const asOf = () => gone ? heard : Number(document.querySelector("#state [data-as-of]")?.dataset.asOf) || null;
  const now = () => asOf() ?? Date.now() + ahead; // clocks stand still while what they belong to is not there
  const language = document.documentElement.lang;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  // Times -----------------------------------------------------------------------------------------------------------
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function spell(seconds) {
    let rest = Math.max(0, Math.floor(seconds));
    const parts = [];
    for (const [name, size] of units) {
      const amount = Math.floor(rest / size);
      rest -= amount * size;
      if (amount) parts.push(`${amount} ${name}`);
      if (parts.length === 2 || (parts.length && !amount)) break;
    }
    return parts.join(" ") || "0 s";
  }

  const say = (sentence, time) => sentence.replace("{time}", time);
  const timeZone = words.zone; // one for all that is shown and typed
  const dateAndTime = new Intl.DateTimeFormat(language, {
    timeZone, year: "numeric", month: "short", day: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  const zone = new Intl.DateTimeFormat(language, { timeZone, timeZoneName: "short" });

  function full(milliseconds) { // the zone stands last: of itself, Chinese has it between the date and the time
    const name = zone.formatToParts(milliseconds).find((part) => part.type === "timeZoneName").value;
    return `${dateAndTime.format(milliseconds)} ${name}`;
  }

  function read(element) {
    const { until, ago, clock } = element.dataset;
    const since = element.dataset.for;
    if (until) {
      const left = (Number(until) - now()) / 1000;
      return left < 1 ? words.due : say(words.in, spell(left));
    }
    if (ago) return say(words.ago, spell((now() - Number(ago)) / 1000));
    if (since) return say(words.for, spell((now() - Number(since)) / 1000));
    return full(Number(clock));
  }

  function tick() {
    for (const element of document.querySelectorAll("time[data-until], time[data-ago], time[data-for], time[data-clock]")) {
      const text = read(element);
      if (element.textContent !== text) element.textContent = text;
      if (!element.title) {
        const { until, ago, clock } = element.dataset;
        element.title = full(Number(until || ago || element.dataset.for || clock));
      }
    }
  }

  tick();
  setInterval(tick, 1000);

  // Items that move from one instance to another are seen to move ------------------------------------------------------
  let places = new Map();

  function remember() {
    places = new Map();
    for (const tile of document.querySelectorAll("li.tile")) places.set(tile.id, tile.getBoundingClientRect());
  }

  function move() {
    if (calm.matches) return;
    for (const tile of document.querySelectorAll("li.tile")) {
      const before = places.get(tile.id), after = tile.getBoundingClientRect();
      if (!before) continue;
      const x = before.left - after.left, y = before.top - after.top;
      if (Math.abs(x) + Math.abs(y) < 2) continue;
      tile.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration: 500, easing: "cubic-bezier(.2,.8,.2,1)" });
    }
  }

  document.addEventListener("htmx:sse:before:message", remember);
  document.addEventListener("htmx:sse:after:message", () => { tick(); move(); });
  document.addEventListener("htmx:after:swap", tick);

  // A stretch of the timeline is chosen by dragging with a mouse or a pen; a finger scrolls it -----------------------------
  let drag = null; // where it began, and what the timeline showed then
  const stretch = Object.assign(document.createElement("div"), { id: "stretch", hidden: true });
  document.body.append(stretch);

  function chosen(event) { // in pixels from the left of the window
    const x = Math.min(Math.max(event.clientX, drag.left), drag.right);
    return [Math.min(x, drag.x), Math.max(x, drag.x)];
  }

  function leave() {
    if (drag) drag.drags = false;
    stretch.hidden = true;
  }

  document.addEventListener("pointerdown", (event) => {
    drag = null;
    const drawing = event.target.closest("svg[data-from]");
    if (!drawing || event.button || event.pointerType === "touch") return;
    const { left: edge, right, width, top, height } = drawing.getBoundingClientRect();
    const left = edge + width * drawing.dataset.inset, { from, to } = drawing.dataset;
    const at = (x) => Number(from) + (x - left) / (right - left) * (to - from);
    drag = { x: Math.max(event.clientX, left), left, right, top, height, at, drags: true, moved: false };
  });

  document.addEventListener("pointermove", (event) => {
    if (!drag?.drags || !drag.moved && Math.abs(event.clientX - drag.x) < 5) return; // a hand that clicks trembles
    if (!drag.moved) event.target.closest("svg[data-from]")?.setPointerCapture(event.pointerId);
    drag.moved = true;
    const [left, right] = chosen(event);
    Object.assign(stretch.style, { left: `${left}px`, width: `${right - left}px`, top: `${drag.top}px`, height: `${drag.height}px` });
    stretch.hidden = false;
  });

  document.addEventListener("pointerup", (event) => {
    if (!drag?.drags || !drag.moved) return leave();
    const form = document.querySelector("form.window"), url = new URL(form.action), [start, end] = chosen(event).map(drag.at);
    const values = { from: Math.floor(start), to: Math.ceil(end), items: form.elements.items?.value };
    for (const [name, value] of Object.entries(values)) if (value !== undefined) url.searchParams.set(name, value);
    leave();
    location.assign(url);
  });

  document.addEventListener("pointercancel", leave);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });
  document.addEventListener("dragstart", (event) => { if (event.target.closest?.("svg[data-from]")) event.preventDefault(); });
  document.addEventListener("click", (event) => { // the runs and the columns below are links
    if (drag?.moved) event.preventDefault();
    drag = null;
  }, true);

  // Where the timeline is wider than the screen, its end is what happens now ----------------------------------------------
  for (const wide of document.querySelectorAll(".drawing")) wide.scrollLeft = wide.scrollWidth;

  // The console itself may go, or sign us out -----------------------------------------------------------------------------
  const MAX_SILENCE = 7000; // milliseconds; the console sends something every two or three seconds

  function lost(sentence) { // empty: the page is live
    let banner = document.getElementById("gone");
    if (!sentence) heard = Date.now() + ahead;
    if (gone === sentence) return;
    gone = sentence;
    document.body.classList.toggle("silent", Boolean(sentence));
    banner?.remove();
    if (!sentence) return;
    const textContent = say(sentence, full(heard));
    banner = Object.assign(document.createElement("p"), { id: "gone", className: "lost", role: "status", textContent });
    document.querySelector("header.top").after(banner);
  }

  const reason = (status) => status === 503 ? words.full : words.lost;

  document.addEventListener("over", () => location.reload());
  document.addEventListener("htmx:sse:after:connection", () => lost(""));
  document.addEventListener("htmx:sse:after:message", () => lost(""));
  document.addEventListener("visibilitychange", () => { if (!gone) heard = Date.now() + ahead; });
  setInterval(() => { // a connection that is open and says nothing is as good as none
    if (gone || document.hidden || Date.now() + ahead - heard < MAX_SILENCE) return;
    const stream = document.querySelector(".live")?._htmx?.sse;
    if (!stream) return;
    lost(words.lost);
    stream.reader?.cancel();
  }, 1000);

  const ANSWER_TIMEOUT = 1000; // milliseconds after which an action that has not been answered says so
  let answerTimer = 0;

  function showNotice(textContent, look) {
    const notice = Object.assign(document.createElement("p"), { className: `notice ${look}`, textContent });
    document.getElementById("notices").replaceChildren(notice);
  }

  document.addEventListener("submit", (event) => { // before htmx: an action must not wait for a console that does not answer
    if (event.target.method !== "post") return;
    clearTimeout(answerTimer);
    if (gone !== words.lost) {
      answerTimer = setTimeout(showNotice, ANSWER_TIMEOUT, words.unanswered, "warn");
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    showNotice(words.refused, "bad");
  }, true);

  document.addEventListener("htmx:finally:request", (event) => {
    if (event.target.matches?.("form")) clearTimeout(answerTimer);
  });

  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) location.reload();
    else if (!document.hidden) lost(reason(event.detail.status));
  });

  for (const name of ["htmx:response:error", "htmx:error"]) document.addEventListener(name, (event) => {
    if (!event.target.matches?.(".live")) return; // the stream did not even begin: htmx would not ask again
    const status = event.detail.ctx?.response?.status;
    if (status === 401) { location.reload(); return; }
    if (!document.hidden) lost(reason(status));
    setTimeout(() => event.target.dispatchEvent(new Event("again")), 3000);
  });

  // A one-time link leads to where this page has been opened, unless the console knows its public address -------------
  for (const link of document.querySelectorAll("code[data-path]")) link.textContent = new URL(link.textContent, location.href).href;

  // The time zone: that of the browser can be chosen as well ---------------------------------------------------------
  const zones = document.querySelector("select[name=zone]"), own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (own && ![...zones.options].some((one) => one.value === own)) zones.add(new Option(own));
  zones.addEventListener("change", () => zones.form.requestSubmit());

  // The page that a search has led to has an address, which can be loaded anew and sent to others ----------------------
  document.addEventListener("htmx:after:swap", () => {
    const { address } = document.getElementById("live")?.dataset ?? {};
    if (!address || address === location.pathname + location.search) return;
    history.replaceState(null, "", address);
    document.querySelector(".prefer [name=next]").value = address;
  });

  // Menus close when something else is meant ---------------------------------------------------------------------------
  const menus = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", (event) => {
    for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of menus()) { menu.open = false; menu.querySelector("summary").focus(); }
    if (event.key === "/" && !event.target.matches("input, textarea, select")) {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); }
    }
  });

  // What was typed for one run is not meant for the next one ----------------------------------------------------------
  document.addEventListener("htmx:after:request", (event) => {
    if (event.target.matches?.("form.trigger") && event.detail.ctx?.response?.raw?.ok) event.target.reset();
  });

  // A form that was refused says where ------------------------------------------------------------------------------------
  document.addEventListener("htmx:after:swap", () => {
    const wrong = document.querySelector("#preview [data-setting]")?.dataset.setting;
    for (const field of document.querySelectorAll("#settings [name]")) {
      if (field.name === wrong) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  });
})();
