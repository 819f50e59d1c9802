// Launches the demo agent, asks it something, and shows the events meanwhile: node demo.mjs [DIRECTORY]
// OUTRIDER_URL and OUTRIDER_API_KEY say which service, and with which key.
import { createClient, followEvents } from "outrider-client";

const options = {
  baseUrl: process.env.OUTRIDER_URL ?? "http://127.0.0.1:8400",
  headers: { Authorization: `Bearer ${process.env.OUTRIDER_API_KEY}` },
};
const api = createClient(options);

const { daemons } = await api.get("/api/v1/daemons");
for (const machine of daemons) console.log(`machine: ${machine.nickname}`);

const daemonId = daemons[0].id;
const { sessionTargetId } = await api.post("/api/v1/shortcuts/{daemonId}/launch", {
  path: { daemonId },
  body: { type: "demo", dir: process.argv[2] },
});
const path = { ideId: sessionTargetId };

let following;
await new Promise((opened) => {
  following = follow(opened);
});
const turn = await ask("Hello from Node");
console.log(turn.messages.at(-1).content.split("\n").at(-1));
await following;
await api.post("/api/v1/shortcuts/{daemonId}/stop", {
  path: { daemonId },
  body: { type: "demo", target: sessionTargetId },
});

/** Print the agent's events until its turn is over. */
async function follow(onOpen) {
  for await (const event of followEvents(options, { target: sessionTargetId, onOpen })) {
    console.log(`event: ${event.event}`);
    if (event.event === "agent:generating_completed") return;
  }
}

/** Send a message, and wait for the end of its turn. */
async function ask(message) {
  let { cursor } = await api.post("/api/v1/shortcuts/{ideId}/chat", { path, body: { message } });
  for (;;) {
    const query = { after: cursor, timeout: 60 };
    const turn = await api.get("/api/v1/shortcuts/{ideId}/wait", { path, query });
    if (turn.reason !== "timeout") return turn;
    cursor = turn.cursor;
  }
}
