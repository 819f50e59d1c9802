import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Plus, Webhook as WebhookIcon } from "lucide-react";
import { useEffect, useState, type FormEvent } from "react";
import { api, explain, type Delivery, type Webhook } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { Dialog, DialogActions } from "@/ui/dialog";
import { keepDraft, keepForm, readDraft, readForm } from "@/ui/drafts";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Check, Field } from "@/ui/field";
import { Page } from "@/ui/page";
import { RowLink } from "@/ui/row-link";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import { eventsOf, webhookState } from "./deliveries";
import { webhooksQuery } from "./queries";
import { SecretOnce } from "./secret-once";

/** The events of the API that can be subscribed to: `webhook:test` is sent on request only. */
type EventName = Exclude<Delivery["event"], "webhook:test">;

/** The events that can be chosen, in groups; `*` also takes those of later releases. */
const EVENTS = [
  ["agent:generating_started", "agent:generating_completed", "agent:waiting_approval", "agent:error"],
  ["approval:opened", "approval:resolved"],
  ["session:started", "session:ended", "session:updated"],
  ["chat:message", "queue:changed"],
  ["machine:connected", "machine:disconnected"],
] as const satisfies readonly (readonly EventName[])[];
// An event that is missing above is an error of tsc here.
({}) satisfies Record<Exclude<EventName, (typeof EVENTS)[number][number]>, never>;

interface Form {
  url: string;
  all: boolean;
  chosen: EventName[];
}

const EMPTY: Form = { url: "", all: true, chosen: [] };
/** The name of what was typed: the dialog opens with it after a new log-in. */
const DRAFT = "webhook";

export function WebhooksPage() {
  const webhooks = useQuery({ ...webhooksQuery, refetchInterval: 10_000 });
  const [creating, setCreating] = useState(() => readDraft(DRAFT) !== "");
  const list = webhooks.data ?? [];
  const create = (
    <Button look="primary" icon={<Plus className="size-4" aria-hidden />} onClick={() => setCreating(true)}>
      {t("webhooks.new")}
    </Button>
  );
  return (
    <Page title={t("webhooks.title")} actions={list.length > 0 && create}>
      {webhooks.error && <Alert className="m-4">{explain(webhooks.error)}</Alert>}
      {webhooks.isPending ? (
        <Skeleton />
      ) : list.length > 0 ? (
        <ul aria-label={t("webhooks.title")}>
          {list.map((webhook) => (
            <WebhookRow key={webhook.id} webhook={webhook} />
          ))}
        </ul>
      ) : (
        !webhooks.error && (
          <Empty icon={<WebhookIcon />} title={t("webhooks.none")} hint={t("webhooks.noneHint")}>
            {create}
          </Empty>
        )
      )}
      {creating && <NewWebhook onClose={() => setCreating(false)} />}
    </Page>
  );
}

function WebhookRow({ webhook }: { webhook: Webhook }) {
  const last = webhook.lastDelivery;
  return (
    <li className="relative flex items-center gap-3 border-b border-line px-4 py-2.5 hover:bg-hover has-focus-visible:bg-hover sm:px-6">
      <Status value={webhookState(webhook)} className="max-sm:order-last sm:w-24" />
      <div className="min-w-0 grow">
        <RowLink to="/webhooks/$webhookId" params={{ webhookId: webhook.id }} className="block font-medium">
          {webhook.url}
        </RowLink>
        <p className="truncate text-sm text-faint">{webhook.disabledReason ?? eventsOf(webhook)}</p>
      </div>
      <p className="hidden shrink-0 text-right text-sm text-faint sm:block">
        {last ? (
          <>
            <span className={last.status === "failed" ? "text-bad" : "text-soft"}>
              {last.status}
              {last.statusCode !== null && ` · ${last.statusCode}`}
            </span>
            <br />
            <Age at={last.at} />
          </>
        ) : (
          t("webhooks.noDelivery")
        )}
      </p>
    </li>
  );
}

function NewWebhook({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const [{ url, all, chosen }, setForm] = useState(() => readForm(DRAFT, EMPTY));
  const set = (change: Partial<Form>) => setForm((form) => ({ ...form, ...change }));
  const [noEvent, setNoEvent] = useState(false);
  const [created, setCreated] = useState<{ id: string; secret: string }>();
  const { run, busy, error } = useAction(
    () => api.post("/api/v1/webhooks", { body: { url: url.trim(), events: all ? ["*"] : chosen } }),
    {
      changes: [keys.webhooks()],
      onDone(webhook) {
        keepDraft(DRAFT, "");
        setCreated(webhook);
      },
    },
  );
  useEffect(() => {
    if (url || !all) keepForm(DRAFT, { url, all, chosen });
  }, [url, all, chosen]);
  const close = () => {
    keepDraft(DRAFT, "");
    onClose();
  };

  function submit(event: FormEvent) {
    event.preventDefault();
    const incomplete = !all && chosen.length === 0;
    setNoEvent(incomplete);
    if (!incomplete) run();
  }
  if (created) {
    return (
      <Dialog open onOpenChange={(open) => !open && onClose()} title={t("webhooks.created")}>
        <SecretOnce
          secret={created.secret}
          done={t("webhooks.show")}
          onDone={() => {
            onClose();
            void navigate({ to: "/webhooks/$webhookId", params: { webhookId: created.id } });
          }}
        />
      </Dialog>
    );
  }
  return (
    <Dialog open onOpenChange={(open) => !open && close()} title={t("webhooks.new")} wide={!all}>
      <form onSubmit={submit} noValidate className="space-y-4">
        <Field
          label={t("webhooks.url")}
          hint={t("webhooks.urlHint")}
          type="url"
          inputMode="url"
          placeholder="https://example.org/hook"
          autoFocus
          spellCheck={false}
          autoCapitalize="none"
          maxLength={2048}
          value={url}
          onChange={(event) => set({ url: event.target.value })}
        />
        <fieldset>
          <legend className="mb-1 text-sm font-medium">{t("webhooks.eventsLegend")}</legend>
          <Check label={t("webhooks.all")} checked={all} onChange={(on) => set({ all: on })} />
          {!all && (
            <div className="mt-2 grid gap-x-6 gap-y-3 border-t border-line pt-2 sm:grid-cols-2">
              {EVENTS.map((group) => (
                <div key={group[0]}>
                  {group.map((name) => (
                    <Check
                      key={name}
                      mono
                      label={name}
                      checked={chosen.includes(name)}
                      onChange={(on) =>
                        set({ chosen: on ? [...chosen, name] : chosen.filter((other) => other !== name) })
                      }
                    />
                  ))}
                </div>
              ))}
            </div>
          )}
        </fieldset>
        {noEvent ? <Alert>{t("webhooks.chooseOne")}</Alert> : error && <Alert>{error}</Alert>}
        <DialogActions>
          <Button type="submit" look="primary" busy={busy} disabled={url.trim() === ""}>
            {t("webhooks.create")}
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
