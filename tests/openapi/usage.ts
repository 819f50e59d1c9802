// Requests as a client in TypeScript writes them. It compiles only if what may be left out of a
// request is optional, and what a response always has is there.
import type { components, operations, paths } from "./api";

type Schemas = components["schemas"];

export const message: Schemas["SendChat"] = { message: "Write a test" };
export const parts: Schemas["SendChat"] = {
  input: {
    parts: [
      { type: "text", text: "What is this?" },
      { type: "image", mimeType: "image/png", data: "iVBORw0KGgo=" },
    ],
  },
};
export const launch: Schemas["LaunchRequest"] = { type: "claude-code" };
export const stop: Schemas["StopRequest"] = { type: "claude-code", sessionId: null };
export const answer: Schemas["ResolveAction"] = { action: "approve" };
export const terminal: Schemas["Terminal"] = { command: "git status" };
export const debug: Schemas["ChatDebug"] = {};
export const webhook: Schemas["WebhookRequest"] = {
  url: "https://example.org/hook",
  events: ["agent:waiting_approval", "*"],
};
export const machine: Schemas["EnrollRequest"] = { code: "x", hostname: "h", platform: "linux" };

type Command = operations["command"]["requestBody"]["content"]["application/json"];
export const command: Command = {
  type: "launch_ide",
  payload: { ideType: "jupyterlab" },
};
export const reading: Command = { type: "read_chat" };

type Limit = NonNullable<paths["/api/v1/shortcuts/{ideId}/chat"]["get"]["parameters"]["query"]>;
export const query: Limit = { limit: 20 };

export function title(session: Schemas["Session"]): string {
  const waits: boolean = session.status === "waiting_approval";
  return (session.title ?? session.name) + (waits ? session.pendingAction!.message : "");
}

export function explain(error: Schemas["ErrorBody"]): string {
  if (error.code === "RATE_LIMITED") return "later";
  return (error.details ?? []).map((detail) => detail.path).join() || error.error;
}

export const failed = (
  answer: operations["send_chat"]["responses"][409]["content"]["application/json"],
): boolean => answer.code === "APPROVAL_PENDING";

// @ts-expect-error: not one of the actions
export const wrong: Schemas["ResolveAction"] = { action: "maybe" };
// @ts-expect-error: not one of the events
export const unknown: Schemas["WebhookRequest"] = { url: "https://example.org", events: ["x"] };
// @ts-expect-error: of another command
export const mixed: Command = { type: "screenshot", payload: { ideType: "jupyterlab" } };
