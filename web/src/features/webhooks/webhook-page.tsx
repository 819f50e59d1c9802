import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { ChevronRight, CircleDashed, Send } from "lucide-react";
import { useId, useState } from "react";
import { api, explain, type Delivery, type Webhook } from "@/api/client";
import { keys } from "@/api/query-keys";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { exactTime } from "@/text/format";
import { Button, buttonClass } from "@/ui/button";
import { cn } from "@/ui/cn";
import { Confirm, Dialog } from "@/ui/dialog";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Page } from "@/ui/page";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import { eventsOf, pretty, resultOf, webhookState } from "./deliveries";
import { deliveryQuery, webhooksQuery } from "./queries";
import { SecretOnce } from "./secret-once";

const route = getRouteApi("/shell/webhooks/$webhookId");
const PAGE = 20;
/** Results of deliveries are no events of the stream, so the newest ones are read again. */
const REFRESH_MS = 3000;
/** With more than these pages on the screen, only a press of a button reads them again. */
const REFRESHED_PAGES = 2;
/** **Replay** repeats what has failed within this time. */
const REPLAYED_MS = 24 * 3600 * 1000;

export function WebhookPage() {
  const { webhookId } = route.useParams();
  const webhooks = useQuery({ ...webhooksQuery, refetchInterval: REFRESH_MS });
  const webhook = webhooks.data?.find(({ id }) => id === webhookId);
  if (webhook) return <WebhookDetails key={webhook.id} webhook={webhook} />;
  if (webhooks.isPending || webhooks.error) {
    return (
      <Page title={t("webhooks.one")} back={{ to: "/webhooks", label: t("webhooks.title") }}>
        {webhooks.error ? <Alert className="m-4">{explain(webhooks.error)}</Alert> : <Skeleton />}
      </Page>
    );
  }
  return (
    <Empty heading="h1" icon={<CircleDashed />} title={t("webhooks.gone")}>
      <Link to="/webhooks" className={buttonClass("primary")}>
        {t("webhooks.title")}
      </Link>
    </Empty>
  );
}

function WebhookDetails({ webhook }: { webhook: Webhook }) {
  const navigate = useNavigate();
  const path = { webhookId: webhook.id };
  const [said, setSaid] = useState<string>();
  const [ask, setAsk] = useState<"rotate" | "delete" | "replay">();
  const [secret, setSecret] = useState<string>();
  const changes = [keys.webhooks(), keys.deliveries(webhook.id)];
  const test = useAction(
    async () => {
      setSaid(undefined);
      const { success, delivery } = await api.post("/api/v1/webhooks/{webhookId}/test", { path });
      setSaid(
        success ? t("webhooks.testDone", delivery.statusCode ?? 0) : t("webhooks.testFailed", delivery.error ?? ""),
      );
    },
    { changes },
  );
  const toggle = useAction(
    () => {
      setSaid(undefined);
      return api.patch("/api/v1/webhooks/{webhookId}", { path, body: { active: !webhook.active } });
    },
    { changes },
  );
  const error = test.error ?? toggle.error;

  return (
    <Page title={webhook.url} back={{ to: "/webhooks", label: t("webhooks.title") }}>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-4 py-2.5 sm:px-6">
        <Status value={webhookState(webhook)} />
        <span className="min-w-0 text-sm text-soft wrap-anywhere">{eventsOf(webhook)}</span>
        <div className="flex flex-wrap gap-2 sm:ml-auto">
          <Button busy={test.busy} icon={<Send className="size-4" aria-hidden />} onClick={() => test.run()}>
            {t("webhooks.test")}
          </Button>
          <Button busy={toggle.busy} onClick={() => toggle.run()}>
            {webhook.active ? t("webhooks.pause") : t("webhooks.resume")}
          </Button>
          <Button onClick={() => setAsk("replay")}>{t("webhooks.replay")}</Button>
          <Button onClick={() => setAsk("rotate")}>{t("webhooks.rotate")}</Button>
          <Button look="danger" onClick={() => setAsk("delete")}>
            {t("webhooks.delete")}
          </Button>
        </div>
      </div>
      {webhook.disabledReason && !webhook.active && (
        <Alert className="m-4 sm:mx-6">{t("webhooks.disabled", webhook.disabledReason)}</Alert>
      )}
      {error && <Alert className="m-4 sm:mx-6">{error}</Alert>}
      <p aria-live="polite" className={said ? "px-4 pt-3 text-sm text-soft wrap-anywhere sm:px-6" : "sr-only"}>
        {said}
      </p>
      <Deliveries webhook={webhook} onTest={() => test.run()} testing={test.busy} />
      <Confirm
        open={ask === "replay"}
        onOpenChange={(open) => setAsk(open ? "replay" : undefined)}
        title={t("webhooks.replayTitle")}
        why={t("webhooks.replayWhy")}
        action={t("webhooks.replay")}
        danger={false}
        onConfirm={async () => {
          const since = Date.now() - REPLAYED_MS;
          const { count } = await api.post("/api/v1/webhooks/{webhookId}/replay", { path, body: { since } });
          setSaid(t("webhooks.replayed", count));
        }}
        changes={changes}
      />
      <Confirm
        open={ask === "rotate"}
        onOpenChange={(open) => setAsk(open ? "rotate" : undefined)}
        title={t("webhooks.rotateTitle")}
        why={t("webhooks.rotateWhy")}
        action={t("webhooks.rotate")}
        onConfirm={async () => {
          const rotated = await api.post("/api/v1/webhooks/{webhookId}/rotate-secret", { path });
          setSecret(rotated.secret);
        }}
      />
      <Confirm
        open={ask === "delete"}
        onOpenChange={(open) => setAsk(open ? "delete" : undefined)}
        title={t("webhooks.deleteTitle")}
        why={t("webhooks.deleteWhy")}
        action={t("webhooks.delete")}
        onConfirm={async () => {
          await api.delete("/api/v1/webhooks/{webhookId}", { path });
          await navigate({ to: "/webhooks" });
        }}
        changes={[keys.webhooks()]}
      />
      <Dialog
        open={secret !== undefined && ask === undefined}
        onOpenChange={(open) => !open && setSecret(undefined)}
        title={t("webhooks.rotated")}
      >
        <SecretOnce secret={secret ?? ""} done={t("app.done")} onDone={() => setSecret(undefined)} />
      </Dialog>
    </Page>
  );
}

function Deliveries({ webhook, onTest, testing }: { webhook: Webhook; onTest: () => void; testing: boolean }) {
  const deliveries = useInfiniteQuery({
    queryKey: keys.deliveries(webhook.id),
    staleTime: 0,
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) =>
      (
        await api.get("/api/v1/webhooks/{webhookId}/deliveries", {
          path: { webhookId: webhook.id },
          query: { limit: PAGE, before: pageParam },
          signal,
        })
      ).deliveries,
    getNextPageParam: (page) => (page.length === PAGE ? page.at(-1)?.id : undefined),
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) <= REFRESHED_PAGES ? REFRESH_MS : false),
  });
  const list = deliveries.data?.pages.flat() ?? [];
  return (
    <section aria-label={t("webhooks.deliveries")}>
      <h2 className="px-4 py-3 text-sm sm:px-6">{t("webhooks.deliveries")}</h2>
      {deliveries.error && <Alert className="mx-4 sm:mx-6">{explain(deliveries.error)}</Alert>}
      {deliveries.isPending ? (
        <Skeleton />
      ) : list.length > 0 ? (
        <ul aria-label={t("webhooks.deliveries")} className="border-t border-line">
          {list.map((delivery) => (
            <DeliveryRow key={delivery.id} delivery={delivery} url={webhook.url} />
          ))}
        </ul>
      ) : (
        !deliveries.error && (
          <Empty icon={<Send />} title={t("webhooks.noDeliveries")} hint={t("webhooks.noDeliveriesHint")}>
            <Button busy={testing} onClick={onTest}>
              {t("webhooks.sendTest")}
            </Button>
          </Empty>
        )
      )}
      {deliveries.hasNextPage && (
        <Button
          className="m-4 sm:mx-6"
          busy={deliveries.isFetchingNextPage}
          onClick={() => void deliveries.fetchNextPage()}
        >
          {t("webhooks.older")}
        </Button>
      )}
    </section>
  );
}

function DeliveryRow({ delivery, url }: { delivery: Delivery; url: string }) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const path = { webhookId: delivery.webhookId, deliveryId: delivery.id };
  const { run, busy, error } = useAction(
    () => api.post("/api/v1/webhooks/{webhookId}/deliveries/{deliveryId}/resend", { path }),
    { changes: [keys.deliveries(delivery.webhookId)] },
  );
  return (
    <li className="border-b border-line">
      <div className="relative flex items-center gap-2 px-2 py-1.5 hover:bg-hover has-focus-visible:bg-hover sm:px-4">
        {/* Its name has no event: `webhook:test` would make it a second "Test" of the page. */}
        <button
          type="button"
          data-row
          aria-label={t("webhooks.details")}
          aria-describedby={id}
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="p-1.5 outline-none after:absolute after:inset-0 focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-accent"
        >
          <ChevronRight
            className={cn("size-4 shrink-0 text-faint transition-transform", open && "rotate-90")}
            aria-hidden
          />
        </button>
        <span id={id} className="flex min-w-0 grow flex-wrap items-center gap-x-3 text-sm sm:flex-nowrap">
          <span className="min-w-0 truncate font-mono text-xs">{delivery.event}</span>
          <span className="flex min-w-0 gap-x-3 text-xs text-faint max-sm:w-full sm:ml-auto">
            <span className={cn("truncate", delivery.status === "failed" && "text-bad")}>{resultOf(delivery)}</span>
            <Age at={delivery.createdAt} className="shrink-0" />
          </span>
        </span>
        <Status value={delivery.status} className="max-sm:[&>svg]:hidden sm:w-24" />
        <Button look="quiet" className="relative" busy={busy} onClick={() => run()}>
          {t("webhooks.resend")}
        </Button>
      </div>
      {error && <Alert className="mx-4 mb-2">{error}</Alert>}
      {open && <Details delivery={delivery} url={url} />}
    </li>
  );
}

function Details({ delivery, url }: { delivery: Delivery; url: string }) {
  const request = useQuery(deliveryQuery(delivery.webhookId, delivery.id));
  return (
    <div className="space-y-4 border-t border-line bg-sunken px-4 py-3 text-sm sm:px-11">
      <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1 text-xs [&_dd]:font-mono [&_dd]:wrap-anywhere [&_dt]:text-faint">
        <dt>{t("webhooks.delivery")}</dt>
        <dd>{delivery.id}</dd>
        <dt>{t("webhooks.event")}</dt>
        <dd>{delivery.eventId}</dd>
        {delivery.nextAttemptAt !== null && (
          <>
            <dt>{t("webhooks.next")}</dt>
            <dd>{exactTime(delivery.nextAttemptAt)}</dd>
          </>
        )}
      </dl>
      <Block title={t("webhooks.request")}>
        {request.error ? (
          <Alert>{explain(request.error)}</Alert>
        ) : request.data ? (
          <Text>
            {[
              `POST ${url}`,
              ...Object.entries(request.data.requestHeaders).map(([name, value]) => `${name}: ${value}`),
            ].join("\n")}
            {"\n\n"}
            {pretty(request.data.requestBody)}
          </Text>
        ) : (
          <Skeleton rows={3} />
        )}
      </Block>
      <Block title={t("webhooks.response")}>
        {delivery.attempts.length === 0 ? (
          <p className="text-soft">{t("webhooks.waiting")}</p>
        ) : (
          <ol className="space-y-3">
            {[...delivery.attempts].reverse().map((attempt) => (
              <li key={attempt.attempt}>
                <p className="mb-1 flex flex-wrap gap-x-3 text-xs text-soft">
                  <span>{t("webhooks.attempt", attempt.attempt)}</span>
                  <span>{exactTime(attempt.startedAt)}</span>
                  <span>{attempt.durationMs} ms</span>
                  {attempt.statusCode !== null && <span className="font-mono">{attempt.statusCode}</span>}
                  {attempt.error && <span className="text-bad wrap-anywhere">{attempt.error}</span>}
                </p>
                {attempt.responseBody && <Text>{attempt.responseBody}</Text>}
                {attempt.responseBody === "" && <p className="text-xs text-faint">{t("webhooks.emptyBody")}</p>}
              </li>
            ))}
          </ol>
        )}
      </Block>
    </div>
  );
}

const Block = ({ title, children }: { title: string; children: React.ReactNode }) => (
  <section aria-label={title}>
    <h3 className="mb-1 text-xs text-faint">{title}</h3>
    {children}
  </section>
);

const Text = ({ children }: { children: React.ReactNode }) => (
  <pre
    tabIndex={0}
    className="max-h-80 overflow-auto rounded-md border border-line bg-ground px-3 py-2 font-mono text-xs whitespace-pre-wrap wrap-anywhere"
  >
    {children}
  </pre>
);
