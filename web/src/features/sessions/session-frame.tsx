/** What stands around a session's page, whatever is known of the session. */
import { explain } from "@/api/client";
import { t, visible } from "@/text";
import { BackLink } from "@/ui/back-link";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Alert, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Status } from "@/ui/status";

interface UnreadProps {
  title: string;
  query?: { error: Error | null; isFetching: boolean; refetch: () => unknown };
}

/** The page while the session has not been read, or could not be. */
export function Unread({ title, query }: UnreadProps) {
  return (
    <Page title={title} back={{ to: "/", label: t("session.back") }}>
      {query?.error ? (
        <div className="p-4">
          <Alert>{explain(query.error)}</Alert>
          <Button className="mt-3" busy={query.isFetching} onClick={() => void query.refetch()}>
            {t("app.retry")}
          </Button>
        </div>
      ) : (
        <Skeleton />
      )}
    </Page>
  );
}

const BACK = <BackLink to="/" label={t("session.back")} className="sm:-ml-2" />;

interface HeaderProps {
  title: string;
  status: string;
  /** What is known of the session, such as its agent, directory and machine. */
  facts: (string | undefined)[];
  action: React.ReactNode;
  children?: React.ReactNode;
}

export function Header({ title, status, facts, action, children }: HeaderProps) {
  return (
    <header className="shrink-0 border-b border-line">
      <div className="flex items-center gap-2 px-2 pt-2 sm:px-6">
        {BACK}
        <h1 className="min-w-0 truncate text-base">{title}</h1>
        <div className="ml-auto flex shrink-0 items-center gap-1">{action}</div>
      </div>
      <div className={cn("flex items-center gap-2.5 px-4 sm:px-6", !children && "pb-2")}>
        <Status value={status} />
        <p className="truncate text-xs text-faint">{visible(facts.filter(Boolean).join(" · "))}</p>
      </div>
      {children}
    </header>
  );
}
