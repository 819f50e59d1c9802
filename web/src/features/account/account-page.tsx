import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t, visible } from "@/text";
import { number } from "@/text/format";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Confirm } from "@/ui/dialog";
import { Alert, Skeleton } from "@/ui/feedback";
import { Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { Age } from "@/ui/time";
import { accountQuery } from "./queries";

const PAGE = 50;

export function AccountPage() {
  return (
    <Page title={t("account.title")}>
      <div className="mx-auto max-w-4xl space-y-8 p-4 sm:p-6">
        <Plan />
        <ApiKeys />
        <SignedIn />
        <Password />
        <Audit />
      </div>
    </Page>
  );
}

function Section({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section aria-label={title}>
      <h2 className="mb-2 text-sm">{title}</h2>
      {children}
    </section>
  );
}

const LIST = "divide-y divide-line rounded-lg border border-line";
const ROW = "flex items-center gap-3 px-3 py-2 text-sm";

function Plan() {
  const account = useQuery({ ...accountQuery, staleTime: 0 }).data;
  if (!account) return <Skeleton rows={1} />;
  const { calls, limit } = account.usage;
  const share = limit === null ? undefined : Math.min(1, calls / limit);
  return (
    <dl className="grid grid-cols-2 gap-6 text-sm sm:grid-cols-3">
      {account.user && (
        <div className="min-w-0 max-sm:col-span-2">
          <dt className="text-xs text-faint">{t("account.user")}</dt>
          <dd className="wrap-anywhere">{account.user.email}</dd>
        </div>
      )}
      <div>
        <dt className="text-xs text-faint">{t("account.plan")}</dt>
        <dd className="capitalize">{account.plan}</dd>
      </div>
      <div>
        <dt className="text-xs text-faint">{t("account.usage")}</dt>
        <dd>{t("account.calls", number(calls), limit === null ? null : number(limit))}</dd>
        {share !== undefined && (
          <progress className="mt-1 h-1.5 w-full" value={share} aria-label={t("account.usage")} />
        )}
      </div>
    </dl>
  );
}

function ApiKeys() {
  const apiKeys = useQuery(accountQuery).data?.keys ?? [];
  const [revoking, setRevoking] = useState<(typeof apiKeys)[number]>();
  return (
    <Section title={t("account.keys")}>
      {apiKeys.length === 0 ? (
        <p className="text-sm text-soft">{t("account.keysNone")}</p>
      ) : (
        <ul className={LIST}>
          {apiKeys.map((key) => (
            <li key={key.id} className={ROW}>
              <div className="min-w-0 grow">
                <div className="font-medium">
                  {key.name} <code className="ml-1 font-mono text-xs font-normal text-faint">{key.prefix}…</code>
                </div>
                <div className="truncate text-xs text-faint" title={key.scopes.join(", ")}>
                  {key.scopes.join(", ")}
                </div>
              </div>
              <span className="shrink-0 text-xs text-faint">
                {key.lastUsedAt === null ? (
                  t("account.neverUsed")
                ) : (
                  <>
                    {t("account.lastUsed")} <Age at={key.lastUsedAt} />
                  </>
                )}
              </span>
              <Button look="danger" onClick={() => setRevoking(key)}>
                {t("account.revoke")}
              </Button>
            </li>
          ))}
        </ul>
      )}
      <Confirm
        open={revoking !== undefined}
        onOpenChange={(open) => !open && setRevoking(undefined)}
        title={t("account.revokeTitle", visible(revoking?.name ?? ""))}
        why={t("account.revokeWhy")}
        action={t("account.revoke")}
        changes={[keys.account()]}
        onConfirm={() => api.delete("/api/v1/account/keys/{keyId}", { path: { keyId: revoking?.id ?? "" } })}
      />
    </Section>
  );
}

function SignedIn() {
  const sessions = useQuery({
    queryKey: keys.logins(),
    staleTime: 0,
    queryFn: async ({ signal }) => (await api.get("/api/v1/account/sessions", { signal })).sessions,
  });
  const signOut = useAction(
    (sessionId: string) => api.delete("/api/v1/account/sessions/{sessionId}", { path: { sessionId } }),
    { changes: [keys.logins()] },
  );
  return (
    <Section title={t("account.signedIn")}>
      {signOut.error && <Alert className="mb-2">{signOut.error}</Alert>}
      {sessions.error && <Alert className="mb-2">{explain(sessions.error)}</Alert>}
      {sessions.isPending && <Skeleton rows={1} />}
      {sessions.data && (
        <ul className={LIST}>
          {sessions.data.map((session) => (
            <li key={session.id} className={ROW}>
              <div className="min-w-0 grow">
                <div className="truncate" title={session.userAgent ?? undefined}>
                  {browserName(session.userAgent)}
                  {session.current && <span className="ml-2 text-xs text-good">{t("account.thisOne")}</span>}
                </div>
                <div className="text-xs text-faint">
                  {session.address && `${session.address} · `}
                  <Age at={session.lastSeenAt} />
                </div>
              </div>
              <Button busy={signOut.input === session.id} onClick={() => signOut.run(session.id)}>
                {t("account.signOut")}
              </Button>
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Password() {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [done, setDone] = useState(false);
  const { run, busy, error } = useAction(() => api.post("/api/v1/auth/password", { body: { current, new: next } }), {
    changes: [keys.logins()],
    onDone() {
      setCurrent("");
      setNext("");
      setDone(true);
    },
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    setDone(false);
    run();
  }
  return (
    <Section title={t("account.password")}>
      <form onSubmit={submit} className="flex flex-wrap items-end gap-3">
        <Field
          label={t("account.passwordCurrent")}
          type="password"
          autoComplete="current-password"
          required
          className="grow basis-48"
          value={current}
          onChange={(event) => setCurrent(event.target.value)}
        />
        <Field
          label={t("account.passwordNew")}
          type="password"
          autoComplete="new-password"
          minLength={10}
          required
          className="grow basis-48"
          value={next}
          onChange={(event) => setNext(event.target.value)}
        />
        <Button type="submit" busy={busy}>
          {t("account.passwordChange")}
        </Button>
      </form>
      {error && <Alert className="mt-2">{error}</Alert>}
      <p aria-live="polite" className="mt-1 text-xs text-faint">
        {done ? t("account.passwordDone") : t("account.passwordHint")}
      </p>
    </Section>
  );
}

/** Return a short name for a User-Agent: the browser and its system. */
function browserName(agent: string | null): string {
  if (!agent) return t("account.unknownBrowser");
  const browser = /(Edg|OPR|Firefox|Chrome|Safari)\/[\d.]+/.exec(agent)?.[1];
  const system = /(Android|iPhone|iPad|Windows|Mac OS X|Linux)/.exec(agent)?.[1];
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera" };
  if (!browser) return agent.slice(0, 60);
  return [names[browser] ?? browser, system].filter(Boolean).join(", ");
}

/** Return the name of an operation of the API as words. */
function actionWords(action: string): string {
  const words = action.replaceAll("_", " ").replace("enrolment", "enrollment");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function Audit() {
  const audit = useInfiniteQuery({
    queryKey: keys.audit(),
    staleTime: 0,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) =>
      (await api.get("/api/v1/audit", { query: { limit: PAGE, before: pageParam }, signal })).records,
    getNextPageParam: (page) => (page.length === PAGE ? page.at(-1)?.id : undefined),
  });
  const records = audit.data?.pages.flat() ?? [];
  return (
    <Section title={t("account.audit")}>
      {audit.error && <Alert>{explain(audit.error)}</Alert>}
      {records.length === 0 && !audit.isPending && <p className="text-sm text-soft">{t("account.auditNone")}</p>}
      {records.length > 0 && (
        <div tabIndex={0} className="overflow-x-auto rounded-lg border border-line">
          <table className="w-full text-sm">
            <tbody>
              {records.map((record) => (
                <tr key={record.id} className="border-b border-line last:border-0">
                  <td className="px-3 py-1.5 text-xs whitespace-nowrap text-faint">
                    <Age at={record.at} />
                  </td>
                  <td className="px-3 py-1.5">
                    {actionWords(record.action)}
                    <code className="ml-2 font-mono text-xs text-faint">{record.action}</code>
                  </td>
                  <td
                    className={cn(
                      "px-3 py-1.5 text-xs whitespace-nowrap tabular-nums",
                      record.outcome >= 400 ? "text-bad" : "text-soft",
                    )}
                  >
                    {record.outcome >= 400
                      ? t("account.refused", record.outcome)
                      : t("account.succeeded", record.outcome)}
                  </td>
                  <td
                    className="max-w-60 truncate px-3 py-1.5 font-mono text-xs text-faint"
                    title={record.target ?? undefined}
                  >
                    {record.target}
                  </td>
                  <td className="px-3 py-1.5 text-xs text-faint">{record.address}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {audit.hasNextPage && (
        <Button className="mt-3" busy={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
          {t("account.auditMore")}
        </Button>
      )}
    </Section>
  );
}
