import { Link } from "@tanstack/react-router";
import { Inbox } from "lucide-react";
import { useEffect, useRef } from "react";
import type { PendingAction } from "@/api/client";
import { useSessions, type Place } from "@/api/queries";
import { ApprovalCard, useAnswer } from "@/session/approval";
import { t } from "@/text";
import { Empty, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Age } from "@/ui/time";
import { isTyping } from "./shortcuts";

/** Every open question of the account. The sessions have them, and events keep those up to date. */
export function InboxPage() {
  const { places, isPending } = useSessions();
  const open = places
    .filter(({ session }) => session.pendingAction !== null)
    .sort((one, other) => one.session.lastActivityAt - other.session.lastActivityAt);
  return (
    <Page
      title={t("inbox.title")}
      actions={open.length > 0 && <span className="text-xs text-faint max-md:hidden">{t("inbox.keys")}</span>}
    >
      {open.length > 0 ? (
        <ul aria-label={t("inbox.list")} className="mx-auto max-w-3xl space-y-3 p-4 sm:p-6">
          {open.map((place) => (
            <InboxCard key={place.session.pendingAction?.id} place={place} action={place.session.pendingAction as PendingAction} />
          ))}
        </ul>
      ) : isPending ? (
        <Skeleton />
      ) : (
        <Empty icon={<Inbox />} title={t("inbox.none")} hint={t("inbox.noneHint")} />
      )}
    </Page>
  );
}

function InboxCard({ place: { session, machine }, action }: { place: Place; action: PendingAction }) {
  const answer = useAnswer(session.targetId, action);
  const row = useRef<HTMLLIElement>(null);
  const latest = useRef(answer);
  latest.current = answer;

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
      if (!row.current?.contains(document.activeElement) || latest.current.busy) return;
      if (event.key === "a") latest.current.approve();
      else if (event.key === "r") latest.current.reject();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  return (
    <li ref={row} data-row tabIndex={-1} className="rounded-lg focus:outline-2 focus:outline-offset-2 focus:outline-accent">
      <ApprovalCard targetId={session.targetId} action={action} name={session.name} answer={answer}>
        <div className="mb-2 flex flex-wrap items-baseline gap-x-2.5 text-sm">
          <Link
            to="/sessions/$targetId"
            params={{ targetId: session.targetId }}
            className="min-w-0 truncate font-medium hover:underline"
          >
            {session.title ?? session.type}
          </Link>
          <span className="truncate text-soft" title={session.workspace?.path}>
            {[machine.nickname, session.workspace?.path].filter(Boolean).join(" · ")}
          </span>
          <Age at={session.lastActivityAt} className="ml-auto text-xs text-soft" />
        </div>
      </ApprovalCard>
    </li>
  );
}
