import { ApiError, createClient, UnreachableError, type Schemas } from "outrider-client";
import { t } from "@/text";
import { clockTime } from "@/text/format";
import { BASE, BASE_PATH, fetchFirst } from "./prefetch";
import { LONGEST_WAIT_S, waitForRateLimit } from "./rate-limit-wait";

export { ApiError, BASE, BASE_PATH, UnreachableError };

export type Account = Schemas["Account"];
export type Session = Schemas["Session"];
export type SessionStatus = Session["status"];
export type EndReason = NonNullable<Session["endReason"]>;
export type Daemon = Schemas["Daemon"];
export type DaemonStatus = Schemas["DaemonStatus"];
export type PendingAction = Schemas["PendingAction"];
export type ActionOption = Schemas["ActionOption"];
export type Chat = Schemas["Chat"];
export type Message = Schemas["Message"];
export type Tool = Schemas["Tool"];
export type FileDiff = Schemas["FileDiff"];
export type Control = Schemas["Control"];
export type Approval = Schemas["Approval"];
export type Provider = DaemonStatus["availableProviders"][number];
export type Webhook = Schemas["Webhook"];
export type Delivery = Schemas["Delivery"];

type Ask = () => Promise<boolean>;
let askPassword: Ask = () => Promise.resolve(false);
let sessionOver: () => void = () => undefined;

/** Register what asks for the password, and what follows the end of the session. */
export function onRefusal(handlers: { askPassword: Ask; sessionOver: () => void }): void {
  askPassword = handlers.askPassword;
  sessionOver = handlers.sessionOver;
}

/** Their forms say at once when to try again: where they are, no page counts the seconds down. */
const FORMS = ["/api/v1/auth/login", "/api/v1/auth/link", "/api/v1/auth/reauthenticate"];

export const api = createClient({
  baseUrl: BASE,
  fetch: fetchFirst,
  async onRefusal(error, path) {
    if (error.code === "RECENT_LOGIN_REQUIRED") return askPassword();
    if (error.status === 401 && !path.startsWith("/api/v1/auth/")) sessionOver();
    if (FORMS.includes(path)) return false;
    if (error.status === 429 && error.retryAfter && error.retryAfter <= LONGEST_WAIT_S) {
      await waitForRateLimit(error.retryAfter); // it was refused, so nothing is done twice
      return true;
    }
    return false;
  },
});

/** Return a sentence for a person about a request that failed. */
export function explain(error: unknown): string {
  if (error instanceof UnreachableError) return t("error.unreachable");
  if (error instanceof ApiError) {
    if (error.status === 429 && error.retryAfter)
      return t("error.limited", clockTime(Date.now() + error.retryAfter * 1000));
    if (error.status === 503) return error.message || t("error.machineGone");
    if (error.status === 504) return t("error.machineSilent");
    const details = error.details
      .filter((detail) => detail.message !== error.message)
      .map((detail) => `${detail.path}: ${detail.message}`.replace(/^: /, ""));
    return [error.message, ...details].join("\n");
  }
  return error instanceof Error ? error.message : String(error);
}
