// Says whether updates arrive, follows logs, and knows the keys. Every page works without it.
(() => {
  const body = document.body;
  const say = (word) => { body.dataset.updates = word; };
  if (document.getElementById("updates")) {
    let lastHeard = 0;
    const heard = () => { lastHeard = Date.now(); say("on"); };
    heard();
    for (const name of ["htmx:sse:after:connection", "htmx:sse:after:message"]) document.addEventListener(name, heard);
    document.addEventListener("htmx:after:request", (event) => {
      const answer = event.detail && event.detail.ctx && event.detail.ctx.response;
      if (answer && answer.status < 400) heard();
    });
    // What is not one of our pages, such as a proxy's own error, must not replace what is shown.
    document.addEventListener("htmx:before:swap", (event) => {
      const ctx = event.detail && event.detail.ctx;
      if (ctx && !String(ctx.text).includes('id="live"')) { event.preventDefault(); say("lost"); }
    });
    for (const name of ["htmx:sse:error", "htmx:error"]) document.addEventListener(name, () => say("lost"));
    // A stream lives for ten seconds, and a page that asks does so every five.
    setInterval(() => { if (!document.hidden && Date.now() - lastHeard > 25000) say("lost"); }, 5000);
  } else {
    body.dataset.script = "on";
  }

  // A log that was read to its end stays at its end when lines arrive.
  const log = () => document.querySelector("pre.log");
  let atEnd = true;
  const toEnd = () => { const lines = log(); if (lines && atEnd) lines.scrollTop = lines.scrollHeight; };
  document.addEventListener("scroll", (event) => {
    if (event.target === log()) atEnd = event.target.scrollTop + event.target.clientHeight >= event.target.scrollHeight - 4;
  }, true);
  document.addEventListener("htmx:after:swap", toEnd);
  if (log() && log().dataset.follow) toEnd();

  // Keys
  const keys = document.getElementById("keys");
  if (!keys) return;
  document.getElementById("show-keys").addEventListener("click", (event) => { event.preventDefault(); keys.showModal(); });
  const step = (by) => {
    const rows = [...document.querySelectorAll("[data-row]")];
    const here = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[Math.min(Math.max(here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by, 0), rows.length - 1)];
    if (!row) return;
    const target = row.querySelector("a, button, time[tabindex]") || row;
    if (target === row) row.tabIndex = -1;
    target.focus();
    row.scrollIntoView({block: "nearest"});
  };
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || keys.open) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const went = Date.now() - going < 2000;
    going = 0;
    if (went) {
      const link = document.querySelector(`header nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    switch (event.key) {
      case "g": going = Date.now(); return;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "?": keys.showModal(); break;
      case "/": {
        const search = document.querySelector("main input[type=search]");
        if (search) { search.focus(); search.select(); } else document.querySelector("header a.name").click();
        break;
      }
      default: return;
    }
    event.preventDefault();
  });
})();
