"""The two pages that a person needs before there is a dashboard: a start, and letting a machine in.

They are static and talk to the API as any other program; a policy lets them load nothing else.
"""

import base64
import hashlib
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:4rem auto;padding:0 1rem}
label{display:block;margin:.8rem 0}input{font:inherit;width:100%;box-sizing:border-box}
button{font:inherit;margin-right:.5rem}:root{color-scheme:light dark}
"""

_SCRIPT: Final = """
const at = id => document.getElementById(id), say = text => { at('said').textContent = text }
at('code').value = new URLSearchParams(location.search).get('code') || ''
async function call(method, path, body) {
  const answer = await fetch('/api/v1/auth/' + path, {
    method, headers: {'Content-Type': 'application/json'},
    body: body === undefined ? undefined : JSON.stringify(body)})
  const data = await answer.json()
  if (!answer.ok) throw new Error(data.error)
  return data
}
const tried = work => event => { event.preventDefault(); work().catch(e => say(e.message)) }
at('login').addEventListener('submit', tried(async () => {
  await call('POST', 'login', {email: at('email').value, password: at('password').value})
  const code = at('code').value
  const machine = await call('GET', 'device?userCode=' + encodeURIComponent(code))
  at('machine').textContent = machine.hostname + ' (' + machine.platform + ')'
  at('login').hidden = true
  at('decide').hidden = false
  say('')
}))
for (const action of ['approve', 'reject'])
  at(action).addEventListener('click', tried(async () => {
    await call('POST', 'device/approve', {userCode: at('code').value, action})
    at('decide').hidden = true
    say(action === 'approve' ? 'Done: the machine connects by itself.' : 'The machine was refused.')
    await call('POST', 'logout', {})
  }))
"""

_DEVICE: Final = f"""<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width"><title>Connect a machine - Outrider</title>
<style>{_STYLE}</style><h1>Connect a machine</h1>
<form id=login>
<label>The code that the machine shows <input id=code required autocomplete=off></label>
<label>Email <input id=email type=email required autocomplete=username></label>
<label>Password <input id=password type=password required autocomplete=current-password></label>
<button>Continue</button></form>
<form id=decide hidden><p>Let <strong id=machine></strong> join your account? Whoever has a key of
the account can run commands on it.</p>
<button id=approve>Approve</button><button id=reject>Reject</button></form>
<p id=said role=status></p><script>{_SCRIPT}</script>"""

_START: Final = f"""<!doctype html><html lang=en><meta charset=utf-8>
<title>Outrider</title><style>{_STYLE}</style><h1>Outrider</h1>
<p>This service drives coding agents on your machines.</p>
<ul><li><a href=/docs>The API</a><li><a href=/device>Connect a machine</a></ul>"""


def routes() -> list[Route]:
    """Return the routes of the pages."""
    headers = {"Content-Security-Policy": _policy(), "Referrer-Policy": "no-referrer"}

    async def start(_request: Request) -> Response:
        return HTMLResponse(_START, headers=headers)

    async def device(_request: Request) -> Response:
        return HTMLResponse(_DEVICE, headers=headers)

    return [Route("/", start), Route("/device", device)]


def _policy() -> str:
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (_SCRIPT, _STYLE)
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
