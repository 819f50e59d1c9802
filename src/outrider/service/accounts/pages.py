"""The HTML pages of the service: the dashboard, approval of a device code, setting a password.

While the dashboard is not built, a static page says how to build it, and another one takes device
codes. These and the password page use the API like any other client. Their Content-Security-Policy
allows no other resources. All URLs in them are relative, so that they work below a base path.
"""

import base64
import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from outrider.service.accounts.one_time_links import PAGE
from outrider.service.http import dashboard

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:4rem auto;padding:0 1rem}
label{display:block;margin:.8rem 0}input{font:inherit;width:100%;box-sizing:border-box}
button{font:inherit;margin-right:.5rem}a{color:light-dark(#0645ad,#8ab4f8)}
:root{color-scheme:light dark;background:light-dark(#fff,#161616);color:light-dark(#111,#eee)}
"""

_CALL: Final = """
const at = id => document.getElementById(id), say = text => { at('said').textContent = text }
const random = crypto.getRandomValues(new Uint8Array(32))
const secret = Array.from(random, byte => byte.toString(16).padStart(2, '0')).join('')
async function call(method, path, body) {
  const answer = await fetch('api/v1/auth/' + path, {
    method, headers: {'Content-Type': 'application/json', 'X-Outrider-Page-Secret': secret},
    body: body === undefined ? undefined : JSON.stringify(body)})
  const data = await answer.json()
  if (!answer.ok) throw new Error(data.error)
  return data
}
const tried = work => event => { event.preventDefault(); work().catch(e => say(e.message)) }
"""

_DEVICE_SCRIPT: Final = f"""{_CALL}
at('code').value = new URLSearchParams(location.search).get('code') || ''
at('login').addEventListener('submit', tried(async () => {{
  await call('POST', 'login', {{email: at('email').value, password: at('password').value}})
  const code = at('code').value
  const machine = await call('GET', 'device?userCode=' + encodeURIComponent(code))
  at('machine').textContent = machine.hostname + ' (' + machine.platform + ')'
  at('asked').textContent = 'Asked from ' + (machine.address || 'an unknown address') + ', ' +
    new Date(machine.requestedAt).toLocaleString() + '.'
  at('replaces').hidden = !machine.replaces
  at('replaced').textContent = machine.replaces ? machine.replaces.nickname : ''
  at('login').hidden = true
  at('decide').hidden = false
  say('')
}}))
for (const action of ['approve', 'reject'])
  at(action).addEventListener('click', tried(async () => {{
    await call('POST', 'device/approve', {{userCode: at('code').value, action}})
    at('decide').hidden = true
    say(action === 'approve' ? 'Done: the machine connects by itself.' : 'The machine was refused.')
    await call('POST', 'logout', {{}})
  }}))
"""

_DEVICE: Final = """
<form id=login>
<label>The code that the machine shows <input id=code required autocomplete=off></label>
<label>Email <input id=email type=email required autocomplete=username></label>
<label>Password <input id=password type=password required autocomplete=current-password></label>
<button>Continue</button></form>
<form id=decide hidden><p>Let <strong id=machine></strong> join your account? Whoever has a key of
the account can run commands on it.</p>
<p id=asked></p>
<p id=replaces hidden>It takes the place of <strong id=replaced></strong>, which is disconnected
then. If you have not just set that machine up again, reject this one.</p>
<p>Approve it only if you started its setup yourself.</p>
<button id=approve>Approve</button><button id=reject>Reject</button></form>
<p id=said role=status></p>"""

_RESET_SCRIPT: Final = f"""{_CALL}
const token = location.hash.slice(1)  // not left in the address and the history
history.replaceState(null, '', location.pathname)
at('set').addEventListener('submit', tried(async () => {{
  const password = at('password').value
  if (password !== at('again').value) throw new Error('The two passwords differ')
  await call('POST', 'password/reset', {{token, password}})
  at('set').hidden = true
  say('The password is set. You can log in with it now.')
}}))
if (!token) say('This link is incomplete: open it as it was sent to you.')
"""

_RESET: Final = """
<form id=set>
<label>New password <input id=password type=password required minlength=10
autocomplete=new-password></label>
<label>The same again <input id=again type=password required autocomplete=new-password></label>
<p>At least 10 characters; common passwords are refused.</p>
<button>Set the password</button></form>
<p id=said role=status></p>"""

_START: Final = """
<p>This service drives coding agents on your machines.</p>
<p>The dashboard is not built. In a clone, <code>make web</code> builds it (Node.js is needed for
that); then start the service again. The wheel contains it.</p>
<ul><li><a href=docs>The API</a><li><a href=device>Connect a machine</a></ul>"""


def routes(built: Path = dashboard.STATIC) -> list[Route]:
    """Return the routes of the pages.

    Args:
        built: the directory of the dashboard's files; it need not exist.
    """
    pages = [
        *dashboard.routes(_response("Outrider", _START), built),
        _route(PAGE, "Set your password", _RESET, _RESET_SCRIPT),
    ]
    if not dashboard.is_built(built):
        pages.append(_route("/device", "Connect a machine", _DEVICE, _DEVICE_SCRIPT))
    return pages


def not_found(built: Path = dashboard.STATIC) -> Route:
    """Return the route of all paths without a page, which comes after all other routes."""
    page = _response("There is no such page", "<p>The address may be mistyped.</p>", status=404)
    return dashboard.not_found(page, built)


def _route(path: str, title: str, body: str, script: str = "") -> Route:
    response = _response(title, body, script)

    async def page(_request: Request) -> Response:
        return response

    return Route(path, page)


def _response(title: str, body: str, script: str = "", status: int = 200) -> HTMLResponse:
    name = title if title == "Outrider" else f"{title} - Outrider"
    html = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width"><title>{name}</title>'
        f"<style>{_STYLE}</style><main><h1>{title}</h1>{body}</main>"
        + (f"<script>{script}</script>" if script else "")
    )
    headers = {"Content-Security-Policy": _policy(script)}
    return HTMLResponse(html, status, headers=headers)


def _policy(script: str) -> str:
    return (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(_STYLE)}; "
        "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _source(text: str) -> str:
    """Return the source expression that allows exactly this inline script or style."""
    if not text:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
