// Runs once for all tabs of a browser: their live pages share one stream, since a host gets no more than six connections.
"use strict";
(() => {
  const MAX_SILENCE = 20000; // milliseconds; the console sends something for every page every five seconds
  const MAX_UNREAD = 30; // events that a tab leaves unread before it counts as gone: not every browser tells that it is
  const pages = new Map(); // what asked for a live page, by a key of ours
  let current = null; // the promise of the stream
  let count = 0;

  async function open(address) {
    const controller = new AbortController();
    const answer = await fetch(address, { headers: { Accept: "text/event-stream" }, signal: controller.signal });
    if (!answer.ok) throw Object.assign(new Error("refused"), { status: answer.status });
    return { id: answer.headers.get("Shared-Stream"), controller, heard: Date.now(), body: answer.body };
  }

  function stream(page) {
    if (current) return current;
    const opened = current = open(page.shared);
    opened.then(async (found) => {
      try { await read(found, page); } catch { /* it has ended all the same */ }
      if (current === opened) current = null;
      for (const one of [...pages.values()]) if (one.stream === found) end(one);
    }, () => { if (current === opened) current = null; });
    return opened;
  }

  async function read(found, opener) {
    let rest = "";
    for await (const chunk of texts(found.body)) {
      found.heard = Date.now();
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) pass(found, opener, ...JSON.parse(line.slice(6)));
    }
  }

  async function* texts(body) {
    const reader = body.getReader(), decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  }

  function pass(found, opener, key, text) {
    const page = pages.get(key);
    if (!page) { if (text !== null) forget(opener, found, key); } // closed while it was asked for
    else if (text === null) end(page);
    else send(page, text);
  }

  function send(page, text) {
    page.unread += 1;
    if (page.unread > MAX_UNREAD) leave(page);
    else page.port.postMessage({ text });
  }

  function end(page) {
    pages.delete(page.key);
    page.port.postMessage({ text: null });
  }

  function leave(page) {
    if (!pages.has(page.key)) return;
    end(page);
    page.controller.abort();
    if (page.stream) forget(page, page.stream, page.key);
  }

  function forget({ leave, csrf }, { id }, page) {
    fetch(leave, { method: "POST", keepalive: true, body: new URLSearchParams({ csrf, stream: id, page }) }).catch(() => {});
  }

  async function join(page) {
    for (let attempt = 1; ; attempt += 1) {
      const asked = stream(page), found = await asked;
      if (attempt === 1 && Date.now() - found.heard > MAX_SILENCE) { // open and silent: as good as none
        found.controller.abort();
        if (current === asked) current = null;
        continue;
      }
      page.stream = found;
      const headers = { ...page.headers, "Shared-Stream": `${found.id} ${page.key}` };
      const answer = await fetch(page.address, { headers, signal: page.controller.signal });
      if (answer.status === 202) { page.port.postMessage({ status: 200 }); return; }
      page.stream = null;
      if (answer.ok && attempt === 1) { // the console does not know that stream, or it belongs to an earlier session
        answer.body.cancel();
        if (current === asked) current = null;
        continue;
      }
      page.port.postMessage({ status: answer.status });
      if (answer.ok) for await (const text of texts(answer.body)) send(page, text); // a stream of its own
      end(page);
      return;
    }
  }

  self.onconnect = ({ ports: [tab] }) => {
    tab.onmessage = ({ data, ports: [port] }) => {
      const page = { ...data, port, key: String(count += 1), controller: new AbortController(), unread: 0, stream: null };
      pages.set(page.key, page);
      port.postMessage({ heard: true });
      port.onmessage = (message) => { if (message.data === "read") page.unread -= 1; else leave(page); };
      port.onclose = () => leave(page);
      join(page).catch((error) => {
        port.postMessage(error.status ? { status: error.status } : { failed: String(error) });
        leave(page);
      });
    };
  };
})();
