"""A receiver of Outrider's webhooks: python receiver.py [PORT], with the secret in SECRET."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from outrider.sdk import webhooks

SECRET = os.environ["SECRET"]
seen: set[str] = set()  # in a database, where events matter


class Receiver(BaseHTTPRequestHandler):
    """Answers deliveries: 204 for those that are true, 400 for all others."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name that http.server asks for
        """Take a delivery."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            event = webhooks.verify(body, self.headers.get("X-Service-Signature"), SECRET)
        except webhooks.VerificationError as error:
            self.send_error(400, explain=str(error))
            return
        if event["id"] not in seen:  # an event may come twice
            seen.add(event["id"])
            print(event["event"], event["payload"], flush=True)  # noqa: T201
        self.send_response(204)
        self.end_headers()


port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
