// A receiver of Outrider's webhooks: node receiver.mjs [PORT], with the secret in SECRET.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const SECRET = process.env.SECRET;
const TOLERANCE_MS = 300_000;
const seen = new Set(); // in a database, where events matter

// Returns the event, or throws an Error that says why the delivery cannot be trusted.
function verify(body, header, secret) {
  const parts = (header ?? "").split(",").map((part) => part.trim().split("="));
  const t = parts.find(([name]) => name === "t")?.[1];
  if (!/^\d{1,16}$/.test(t ?? "")) throw new Error("no signature");
  const expected = createHmac("sha256", secret).update(`${t}.`).update(body).digest();
  const matches = parts
    .filter(([name]) => name === "v1") // two of them while the secret is rotated
    .map(([, hex]) => Buffer.from(hex ?? "", "hex"))
    .some((given) => given.length === expected.length && timingSafeEqual(given, expected));
  if (!matches) throw new Error("the signature does not match the body");
  if (Math.abs(Date.now() - Number(t)) > TOLERANCE_MS) throw new Error("signed too long ago");
  return JSON.parse(body);
}

createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    let event;
    try {
      event = verify(Buffer.concat(parts), request.headers["x-service-signature"], SECRET);
    } catch (error) {
      response.writeHead(400).end(error.message);
      return;
    }
    if (!seen.has(event.id)) {
      seen.add(event.id); // an event may come twice
      console.log(event.event, JSON.stringify(event.payload));
    }
    response.writeHead(204).end();
  });
}).listen(Number(process.argv[2] ?? 9000), "127.0.0.1");
