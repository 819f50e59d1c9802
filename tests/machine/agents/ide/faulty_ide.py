"""A web IDE for the tests: one page with two agents, that does what a message tells it to.

usage: faulty_ide.py PORT. `alpha` stands in the page, in a list that draws only the rows in
sight; `beta` two frames further down. Words in a message: WORK:n (ms), ASK, SAYERROR, SILENT.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT = """
<style>
  body { margin: 0; font: 14px sans-serif } #list { height: 200px; overflow: auto }
  .row { height: 24px } .gap { height: 0 }
</style>
<div id="panel"><h1>AGENT chat</h1>
<div id="list"></div><div id="busy"></div><div id="dialog"></div><div id="failed"></div>
<textarea id="text"></textarea><button id="send">Send</button>
<button class="never" style="display: none">Allow</button></div>
<script>
const $ = (id) => document.getElementById(id);
const KEY = "AGENT rows";
let rows = JSON.parse(sessionStorage.getItem(KEY) || "[]");
function draw() {
  const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / 24) - 2);
  const part = rows.slice(first, first + 14);
  list.replaceChildren();
  const gap = (n) => { const e = document.createElement("div"); e.style.height = 24 * n + "px";
                       list.append(e) };
  gap(first);
  part.forEach((row, n) => {
    const e = document.createElement("div");
    e.className = "row " + row.role; e.dataset.id = first + n; e.textContent = row.text;
    list.append(e);
  });
  gap(Math.max(0, rows.length - first - part.length));
}
function add(role, text) {
  rows.push({ role, text }); sessionStorage.setItem(KEY, JSON.stringify(rows));
  draw(); $("list").scrollTop = 1e9; draw();
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function work(ms) {
  $("busy").innerHTML = '<span class="working">working</span><button class="halt">Stop</button>';
  const halted = new Promise((done) => ($("busy").querySelector(".halt").onclick = done));
  await Promise.race([pause(ms), halted]);
  $("busy").replaceChildren();
}
function ask(what) {
  return new Promise((done) => {
    $("dialog").innerHTML = '<div class="ask"><p></p><button class="never" style="display:none">' +
      'Allow</button><button class="yes">Allow</button><button class="no">Deny</button></div>';
    $("dialog").querySelector("p").textContent = what;
    for (const name of ["yes", "no"]) $("dialog").querySelector("." + name).onclick = () => {
      window.clicks = (window.clicks || 0) + 1; $("dialog").replaceChildren(); done(name);
    };
  });
}
function redraw(ms, words) { // takes the question away, and draws it anew after a while
  const parts = [...$("dialog").children]; $("dialog").replaceChildren();
  setTimeout(() => {
    $("dialog").replaceChildren(...parts);
    if (words) $("dialog").querySelector("p").textContent = words;
  }, ms);
}
$("list").onscroll = draw;
$("send").onclick = async () => {
  const text = $("text").value; $("text").value = ""; $("failed").replaceChildren();
  if (!text) return;
  add("user", text);
  if (text.includes("SILENT")) return;
  const ms = /WORK:(\\d+)/.exec(text); if (ms) await work(+ms[1]);
  if (text.includes("ASK")) { add("agent", "answered " + await ask("May I " + text + "?")) }
  if (text.includes("SAYERROR")) {
    $("failed").innerHTML = '<div class="error">no credit left</div>'; return;
  }
  add("agent", "You said: " + text);
};
draw();
</script>
"""
MAIN = "<title>Faulty</title>" + CHAT.replace("AGENT", "alpha") + "<iframe src='/outer'></iframe>"
PAGES = {
    "/": MAIN,
    "/outer": "<iframe src='/inner'></iframe>",
    "/inner": CHAT.replace("AGENT", "beta").replace('id="panel"', 'id="panel" class="beta"'),
}


class Page(BaseHTTPRequestHandler):
    """Serves the pages."""

    def do_GET(self) -> None:
        page = PAGES.get(self.path.partition("?")[0])
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
