import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleDashed, Play } from "lucide-react";
import { ApiError, type EndReason } from "@/api/client";
import { machineOf } from "@/api/target-id";
import { machineQuery } from "@/features/machines/queries";
import { t, visible } from "@/text";
import { Button, buttonClass } from "@/ui/button";
import { Alert, Empty } from "@/ui/feedback";
import { useTitle } from "@/ui/page";
import { Chat } from "./chat/chat";
import { chatQuery, endedQuery } from "./queries";
import { Header, Unread } from "./session-frame";
import { useResume } from "./use-resume";

const ENDS: Record<EndReason, string> = {
  stopped: t("session.ended.stopped"),
  exited: t("session.ended.exited"),
  crashed: t("session.ended.crashed"),
  machine_restarted: t("session.ended.machine_restarted"),
};

/** Return in a sentence why a session ended; a newer service may have other reasons. */
function endSentence(reason: EndReason | null | undefined): string {
  return (reason && ENDS[reason]) ?? t("session.endedSince");
}

/** A session that has ended: its chat stays, and it can be resumed where its agent can do that. */
export function EndedSession({ targetId }: { targetId: string }) {
  const daemonId = machineOf(targetId);
  // What was read while it ran does not say that it has ended.
  const chat = useQuery({ ...chatQuery(targetId), refetchOnMount: "always", retryOnMount: false });
  const machine = useQuery(machineQuery(daemonId)).data;
  const sessionId = chat.data?.sessionId ?? "";
  const ended = useQuery({ ...endedQuery(sessionId), enabled: sessionId !== "" }).data;
  const { run: resume, busy, error } = useResume();
  const title = visible(chat.data?.title ?? chat.data?.type ?? t("session.one"));
  useTitle(title);

  if (chat.isPending || (chat.isFetching && chat.data?.state !== "ended")) return <Unread title={title} />;
  if (chat.error || chat.data.state !== "ended") {
    const gone = !chat.error || (chat.error instanceof ApiError && chat.error.status === 404);
    return gone ? (
      <Empty heading="h1" icon={<CircleDashed />} title={t("session.gone")} hint={t("session.goneHint")}>
        <Link to="/" className={buttonClass("primary")}>
          {t("app.home")}
        </Link>
      </Empty>
    ) : (
      <Unread title={title} query={chat} />
    );
  }
  const { type, resumable, agentType } = chat.data;
  const name = ended?.name ?? agentType;
  const why = ended?.notResumable ? t("session.notResumable", ended.notResumable) : t("session.notResumableUnknown");
  return (
    <div className="flex h-full flex-col">
      <Header
        title={title}
        status="ended"
        facts={[name, ended?.workspace?.path, machine?.nickname]}
        action={
          resumable && (
            <Button
              look="primary"
              busy={busy}
              icon={<Play className="size-4" aria-hidden />}
              onClick={() => resume({ id: sessionId, targetId, type })}
            >
              {t("session.resume")}
            </Button>
          )
        }
      />
      <div className="min-h-0 grow">
        <Chat targetId={targetId} name={name} generating={false} ended />
      </div>
      <div className="shrink-0 border-t border-line px-4 py-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-6">
        <div className="mx-auto max-w-3xl text-sm text-soft">
          {error && <Alert className="mb-2">{error}</Alert>}
          {endSentence(ended?.endReason)} {!resumable && why}
        </div>
      </div>
    </div>
  );
}
