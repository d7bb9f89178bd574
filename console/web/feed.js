"use strict";
// One stream for all tabs of a browser. Each tab is told when it is open, when it is lost, and every frame.

const NAMES = ["nodes", "workers", "alarms", "load", "health", "sources", "moves", "events", "gap"];
const ports = new Set();
const tell = (message) => ports.forEach((p) => p.postMessage(message));
let stream = null, open = false, timer = 0;

function connect() {
  clearTimeout(timer);
  stream = new EventSource("api/stream");
  stream.onopen = () => { open = true; tell({ open }); };
  stream.onerror = () => { disconnect(); tell({ lost: true }); timer = setTimeout(connect, 1500); };
  for (const name of NAMES) stream.addEventListener(name, (ev) => tell({ name, id: Number(ev.lastEventId), data: ev.data }));
}
function disconnect() {
  clearTimeout(timer);
  if (stream) stream.close();
  stream = null;
  open = false;
}
onconnect = (ev) => {
  const port = ev.ports[0];
  ports.add(port);
  port.onmessage = () => { // a tab says nothing but that it leaves
    ports.delete(port);
    if (!ports.size) disconnect();
  };
  if (open) port.postMessage({ open });
  else if (!stream) connect();
};
