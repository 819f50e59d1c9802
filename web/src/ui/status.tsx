import {
  Circle,
  CircleCheck,
  CircleDashed,
  CircleHelp,
  CirclePause,
  CircleX,
  Loader,
  type LucideIcon,
} from "lucide-react";
import type { Delivery, SessionStatus } from "@/api/client";
import { t } from "@/text";
import { cn } from "./cn";

type Known = { icon: LucideIcon; look: string; hint?: string; turning?: boolean };

type MachineState = "online" | "reconnecting" | "offline";
type WebhookState = "active" | "paused" | "disabled";
type State = SessionStatus | "ended" | Delivery["status"] | MachineState | WebhookState;

/** Each state has its own shape and word; colour only repeats what they say. */
const STATES: Record<State, Known> = {
  waiting_approval: { icon: CircleHelp, look: "text-waiting", hint: t("status.waiting_approval") },
  generating: { icon: Loader, look: "text-working", hint: t("status.generating"), turning: true },
  error: { icon: CircleX, look: "text-bad", hint: t("status.error") },
  idle: { icon: Circle, look: "text-faint", hint: t("status.idle") },
  ended: { icon: CircleDashed, look: "text-faint" },
  active: { icon: CircleCheck, look: "text-good" },
  paused: { icon: CirclePause, look: "text-faint" },
  disabled: { icon: CircleX, look: "text-bad" },
  pending: { icon: CircleDashed, look: "text-waiting" },
  succeeded: { icon: CircleCheck, look: "text-good" },
  failed: { icon: CircleX, look: "text-bad" },
  online: { icon: CircleCheck, look: "text-good" },
  reconnecting: { icon: Loader, look: "text-waiting", turning: true },
  offline: { icon: CircleDashed, look: "text-faint" },
};

const lookOf = (value: string): Known =>
  (STATES as Record<string, Known>)[value] ?? { icon: Circle, look: "text-soft" };

/** The sign of a state, without its word. */
export function StatusMark({ value }: { value: string }) {
  const { icon: Icon, look, turning } = lookOf(value);
  return <Icon className={cn("size-3.5 shrink-0", look, turning && "animate-turn")} strokeWidth={2.25} aria-hidden />;
}

/**
 * A state, by the word that the API has for it, which is also its accessible name. A newer service
 * may have others.
 */
export function Status({ value, className }: { value: string; className?: string }) {
  const { look, hint } = lookOf(value);
  return (
    <span
      role="status"
      aria-live="off" // in a list of 60, each change would be read out
      aria-label={value}
      title={hint}
      className={cn("inline-flex shrink-0 items-center gap-1.5 text-xs font-medium whitespace-nowrap", look, className)}
    >
      <StatusMark value={value} />
      {value}
    </span>
  );
}
