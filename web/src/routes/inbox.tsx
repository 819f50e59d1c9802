import { Link } from "@tanstack/react-router";
import { Inbox } from "lucide-react";
import { useState, type KeyboardEvent } from "react";
import { explain, type Approval } from "@/api/client";
import { useFleet } from "@/api/fleet";
import { ApprovalCard, useAnswer } from "@/session/approval";
import { t, visible } from "@/text";
import { Alert, Empty, Notice, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Age } from "@/ui/time";
import { isTyping } from "./shortcuts";

/** Every open question of the account, the oldest first. */
export function InboxPage() {
  const { approvals: open, places, isPending, error } = useFleet();
  const [notice, setNotice] = useState<string>();
  const names = new Map(places.map(({ session }) => [session.id, session.name]));
  return (
    <Page
      title={t("inbox.title")}
      actions={open.length > 0 && <span className="text-xs text-faint max-md:hidden">{t("inbox.keys")}</span>}
    >
      {notice && <Notice text={notice} onEnd={() => setNotice(undefined)} className="mx-auto mt-4 max-w-3xl max-sm:mx-4" />}
      {open.length > 0 ? (
        <ul aria-label={t("inbox.list")} className="mx-auto max-w-3xl space-y-3 p-4 sm:p-6">
          {open.map((approval) => (
            <InboxCard
              key={approval.action.id}
              approval={approval}
              name={names.get(approval.sessionId) ?? approval.type}
              onElsewhere={() => setNotice(t("approval.elsewhereOf", visible(approval.title ?? approval.type)))}
            />
          ))}
        </ul>
      ) : error ? (
        <Alert className="m-4">{explain(error)}</Alert>
      ) : isPending ? (
        <Skeleton />
      ) : (
        <Empty icon={<Inbox />} title={t("inbox.none")} hint={t("inbox.noneHint")} />
      )}
    </Page>
  );
}

interface InboxCardProps {
  approval: Approval;
  name: string;
  /** Called if the question was answered elsewhere. */
  onElsewhere: () => void;
}

function InboxCard({ approval, name, onElsewhere }: InboxCardProps) {
  const { action, targetId, workspace } = approval;
  const answer = useAnswer(targetId, action, onElsewhere);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || answer.busy) return;
    if (event.key === "a") answer.approve();
    else if (event.key === "r") answer.reject();
  };

  return (
    <li
      data-row
      tabIndex={-1}
      onKeyDown={onKeyDown}
      className="rounded-lg focus:outline-2 focus:outline-offset-2 focus:outline-accent"
    >
      <ApprovalCard targetId={targetId} action={action} name={name} answer={answer}>
        <div className="mb-2 flex flex-wrap items-baseline gap-x-2.5 text-sm">
          <Link
            to="/sessions/$targetId"
            params={{ targetId }}
            className="min-w-0 truncate font-medium hover:underline"
          >
            {visible(approval.title ?? approval.type)}
          </Link>
          <span className="truncate text-soft" title={workspace ? visible(workspace.path) : undefined}>
            {visible([approval.nickname, workspace?.path].filter(Boolean).join(" · "))}
          </span>
          <Age at={approval.createdAt} className="ml-auto text-xs text-soft" />
        </div>
      </ApprovalCard>
    </li>
  );
}
