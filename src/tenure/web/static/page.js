// Says whether updates arrive, and nothing else: every page works without it.
(() => {
  const body = document.body;
  if (!document.getElementById("updates")) return;
  const say = (word) => { body.dataset.updates = word; };
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
})();
