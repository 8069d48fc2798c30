// The live pages of a browser share one stream, where the browser lets them.  This comes before htmx, which asks at once.
"use strict";
(() => {
  const words = document.body.dataset;
  const EVENTS = { "Content-Type": "text/event-stream" };
  const MAX_WAIT = 10000; // milliseconds in which the worker, which asks nobody for that, says that it has heard
  const ownFetch = window.fetch.bind(window);
  const waiting = new Set(); // what asks for its own stream if the shared one cannot be had
  let worker = null;
  try {
    worker = new SharedWorker(words.worker);
    worker.onerror = () => { worker = null; for (const one of waiting) one(); };
  } catch { /* not in this browser: every page has a stream of its own */ }

  function sharedFetch(address, { headers, signal }) {
    return new Promise((resolve, reject) => {
      const { port1: port, port2 } = new MessageChannel(), encoder = new TextEncoder();
      let events, isAnswered = false;
      const answer = (response) => { isAnswered = true; waiting.delete(own); resolve(response); };
      const own = () => { close(); answer(ownFetch(address, { headers, signal })); };
      const timer = setTimeout(own, MAX_WAIT);
      const close = () => {
        clearTimeout(timer);
        waiting.delete(own);
        removeEventListener("pagehide", close);
        port.onmessage = null;
        port.postMessage("leave");
        port.close();
      };
      const body = new ReadableStream({ start: (controller) => { events = controller; }, cancel: close });
      waiting.add(own);
      port.onmessage = ({ data: { heard, status, failed, text } }) => {
        if (heard) clearTimeout(timer);
        else if (failed) { close(); reject(new TypeError(failed)); }
        else if (status) answer(new Response(status === 200 ? body : "", { status, headers: EVENTS }));
        else if (text !== null) { events.enqueue(encoder.encode(text)); port.postMessage("read"); }
        else {
          close();
          events.close();
          if (!isAnswered) answer(new Response("", { headers: EVENTS })); // the stream has ended meanwhile: ask again
        }
      };
      signal?.addEventListener("abort", () => { reject(signal.reason); close(); });
      addEventListener("pagehide", close);
      const csrf = document.querySelector("[name=csrf]").value;
      const { shared, leave } = words;
      worker.port.postMessage({ address, headers: { ...headers }, csrf, shared, leave }, [port2]);
    });
  }

  window.fetch = (address, options) => {
    const isLive = String(address).split("?")[0].endsWith("/live");
    return worker && isLive ? sharedFetch(String(address), options) : ownFetch(address, options);
  };
})();
