import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { CircleCheck, CircleSlash, Loader2, TriangleAlert } from "lucide-react";
import { useState, type FormEvent } from "react";
import { api, explain } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t, visible } from "@/text";
import { exactTime } from "@/text/format";
import { Button, buttonClass } from "@/ui/button";
import { Alert, Skeleton } from "@/ui/feedback";
import { Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { Age } from "@/ui/time";
import { useJoinedMachine } from "./use-joined-machine";

const route = getRouteApi("/shell/device");

/** Approve a machine that waits with a device code. The address may have the code. */
export function DevicePage() {
  const { code } = route.useSearch();
  const navigate = useNavigate();
  return (
    <Page title={t("device.title")}>
      <div className="mx-auto max-w-lg p-4 sm:py-10">
        {code ? (
          <Waiting key={code} code={code} />
        ) : (
          <Enter onCode={(next) => void navigate({ to: "/device", search: { code: next } })} />
        )}
      </div>
    </Page>
  );
}

function Enter({ onCode }: { onCode: (code: string) => void }) {
  const [code, setCode] = useState("");
  function submit(event: FormEvent) {
    event.preventDefault();
    if (code.trim()) onCode(code.trim());
  }
  return (
    <form onSubmit={submit} className="space-y-4">
      <Field
        label={t("device.code")}
        hint={t("device.codeHint")}
        required
        autoFocus
        autoComplete="off"
        autoCapitalize="characters"
        spellCheck={false}
        maxLength={64}
        placeholder="ABCD-EFGH"
        value={code}
        onChange={(event) => setCode(event.target.value)}
      />
      <div className="flex justify-end">
        <Button type="submit" look="primary" disabled={!code.trim()}>
          {t("device.continue")}
        </Button>
      </div>
    </form>
  );
}

type Decision = "approve" | "reject";

function Waiting({ code }: { code: string }) {
  const [decided, setDecided] = useState<Decision>();
  const decide = useAction(
    (action: Decision) => api.post("/api/v1/auth/device/approve", { body: { userCode: code, action } }),
    { onDone: (_, action) => setDecided(action) },
  );
  const device = useQuery({
    queryKey: keys.device(code),
    staleTime: 0,
    gcTime: 0,
    refetchOnMount: "always",
    enabled: decided === undefined,
    queryFn: ({ signal }) => api.get("/api/v1/auth/device", { query: { userCode: code }, signal }),
  });
  const machine = device.data;

  if (!machine) {
    if (!device.error) return <Skeleton />;
    return (
      <div className="space-y-4">
        <Alert>{explain(device.error)}</Alert>
        <AnotherCode />
      </div>
    );
  }
  if (decided === "reject") {
    return (
      <div className="space-y-4" aria-live="polite">
        <p className="flex gap-2">
          <CircleSlash className="mt-0.5 size-4 shrink-0 text-faint" aria-hidden />
          {t("device.rejected")}
        </p>
        <AnotherCode />
      </div>
    );
  }
  const hostname = visible(machine.hostname);
  const name = machine.nickname ? visible(machine.nickname) : hostname;
  if (decided === "approve") return <Approved name={name} hostname={machine.hostname} />;
  return (
    <section aria-label={t("device.question")} className="space-y-4 rounded-lg border border-line p-4 sm:p-5">
      <h2 className="text-lg">{t("device.question")}</h2>
      <dl className="grid grid-cols-[auto_1fr] gap-x-6 gap-y-2 text-sm [&_dd]:wrap-anywhere [&_dt]:text-faint">
        <dt>{t("device.code")}</dt>
        <dd className="font-mono text-base font-semibold tracking-wider">{code}</dd>
        <dt>{t("device.machine")}</dt>
        <dd className="font-medium">
          {name}
          {name !== hostname && <span className="font-normal text-soft"> ({hostname})</span>}
        </dd>
        <dt>{t("device.system")}</dt>
        <dd>{visible(machine.platform)}</dd>
        <dt>{t("device.asked")}</dt>
        <dd>{machine.address ?? t("device.unknownAddress")}</dd>
        <dt>{t("device.askedAt")}</dt>
        <dd>
          {exactTime(machine.requestedAt)} (<Age at={machine.requestedAt} />)
        </dd>
      </dl>
      {machine.replaces && <Warning>{t("device.replaces", visible(machine.replaces.nickname))}</Warning>}
      <Warning>{t("device.warning")}</Warning>
      {decide.error && <Alert>{decide.error}</Alert>}
      <div className="flex justify-end gap-2">
        <Button busy={decide.input === "reject"} disabled={decide.busy} onClick={() => decide.run("reject")}>
          {t("device.reject")}
        </Button>
        <Button
          look="primary"
          busy={decide.input === "approve"}
          disabled={decide.busy}
          onClick={() => decide.run("approve")}
        >
          {t("device.approve")}
        </Button>
      </div>
    </section>
  );
}

function Approved({ name, hostname }: { name: string; hostname: string }) {
  const joined = useJoinedMachine(hostname);
  return (
    <div className="space-y-4" aria-live="polite">
      {joined ? (
        <>
          <p className="flex gap-2 text-good">
            <CircleCheck className="mt-0.5 size-4 shrink-0" aria-hidden />
            {t("device.connected", visible(joined.nickname))}
          </p>
          <Link to="/machines/$daemonId" params={{ daemonId: joined.id }} className={buttonClass("primary")}>
            {t("connect.show")}
          </Link>
        </>
      ) : (
        <p className="flex gap-2 text-soft">
          <Loader2 className="mt-0.5 size-4 shrink-0 animate-turn" aria-hidden />
          {t("device.approved", name)}
        </p>
      )}
    </div>
  );
}

const AnotherCode = () => (
  <Link to="/device" search={{}} className={buttonClass("plain")}>
    {t("device.another")}
  </Link>
);

const Warning = ({ children }: { children: React.ReactNode }) => (
  <p className="flex gap-2 rounded-md border border-waiting-line bg-waiting-soft px-3 py-2 text-sm text-waiting">
    <TriangleAlert className="mt-0.5 size-4 shrink-0" aria-hidden />
    <span>{children}</span>
  </p>
);
