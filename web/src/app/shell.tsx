import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate, useRouter, useRouterState } from "@tanstack/react-router";
import {
  Ellipsis,
  History,
  Hourglass,
  Inbox,
  ListTree,
  LogOut,
  MonitorSmartphone,
  Search,
  User,
  Webhook,
  WifiOff,
  type LucideIcon,
} from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { api, ApiError, BASE, onRefusal } from "@/api/client";
import { queryClient } from "@/api/query-client";
import { keys } from "@/api/query-keys";
import { useRateLimitWait } from "@/api/rate-limit-wait";
import { useAction } from "@/api/use-action";
import { accountQuery, userOf } from "@/features/account/queries";
import { usePasswordPrompt } from "@/features/account/use-password-prompt";
import { questionsQuery } from "@/features/inbox/queries";
import { FleetProvider } from "@/features/sessions/fleet";
import { closeLive, openLive, useLost } from "@/live";
import { announceUser } from "@/live/user";
import { t } from "@/text";
import { clockTime } from "@/text/format";
import { cn } from "@/ui/cn";
import { clearDrafts } from "@/ui/drafts";
import { Notice } from "@/ui/feedback";
import { Mark } from "@/ui/mark";
import { Menu } from "@/ui/menu";
import { SWITCHER_KEY } from "@/ui/platform";
import { useWide } from "@/ui/use-wide";
import { useShortcuts } from "./shortcuts";

const PasswordPrompt = lazy(() => import("@/features/account/password-prompt"));
const Switcher = lazy(() => import("./switcher"));
const Keys = lazy(() => import("./keyboard-help"));

interface Entry {
  to: "/" | "/inbox" | "/machines" | "/history" | "/webhooks" | "/account";
  label: string;
  icon: LucideIcon;
}

const ENTRIES: Entry[] = [
  { to: "/", label: t("nav.sessions"), icon: ListTree },
  { to: "/inbox", label: t("nav.inbox"), icon: Inbox },
  { to: "/machines", label: t("nav.machines"), icon: MonitorSmartphone },
  { to: "/history", label: t("nav.history"), icon: History },
  { to: "/webhooks", label: t("nav.webhooks"), icon: Webhook },
  { to: "/account", label: t("nav.account"), icon: User },
];

/** How many entries have room at the lower edge of a phone; the others are in its menu. */
const TABS = 3;

/** Everything around a page for a user who is logged in. */
export function Shell() {
  const router = useRouter();
  const navigate = useNavigate();
  const prompt = usePasswordPrompt();
  const [open, setOpen] = useState<"switcher" | "keys">();
  const { run: logOut, error: notLoggedOut, reset: forgetLogOut } = useLogOut();
  const wide = useWide();

  useEffect(() => {
    const sessionOver = () => {
      closeLive();
      const { href, pathname } = router.state.location;
      if (pathname === "/login") return;
      queryClient.removeQueries({ queryKey: keys.account() });
      void navigate({ to: "/login", search: { next: href, over: true } });
    };
    onRefusal({ askPassword: prompt.ask, sessionOver });
    const account = queryClient.getQueryData(accountQuery.queryKey);
    if (!account) return; // `beforeLoad` of the route has read it
    const user = userOf(account);
    openLive(user, sessionOver);
    const leave = announceUser(user, () => location.reload());
    return () => {
      leave();
      closeLive();
    };
  }, [router, navigate, prompt.ask]);

  useShortcuts({ openSwitcher: () => setOpen("switcher"), openKeys: () => setOpen("keys") });

  return (
    <FleetProvider>
      <div className="flex h-dvh flex-col md:flex-row">
        <a
          href="#content"
          className="sr-only z-60 rounded-md bg-raised px-3 py-2 focus:not-sr-only focus:absolute focus:top-2 focus:left-2"
        >
          {t("app.skip")}
        </a>
        {wide && <Sidebar openSwitcher={() => setOpen("switcher")} logOut={logOut} />}
        <main id="content" tabIndex={-1} className="flex min-h-0 min-w-0 grow flex-col outline-none">
          <LostBanner />
          <LimitedBanner />
          {notLoggedOut && <Notice className="m-3" text={notLoggedOut} onEnd={forgetLogOut} />}
          <div className="min-h-0 grow">
            <Outlet />
          </div>
        </main>
        {!wide && <TabBar openSwitcher={() => setOpen("switcher")} logOut={logOut} />}
        <Suspense>
          {prompt.open && <PasswordPrompt finish={prompt.finish} />}
          {open === "switcher" && <Switcher onClose={() => setOpen(undefined)} />}
          {open === "keys" && <Keys onClose={() => setOpen(undefined)} />}
        </Suspense>
      </div>
    </FleetProvider>
  );
}

/** The number of open questions; what shows it is drawn again only when that changes. */
const useWaiting = (): number => useQuery({ ...questionsQuery, select: (approvals) => approvals.length }).data ?? 0;

/** Return what logs out; the service may refuse to end the session, which `error` says. */
function useLogOut() {
  const router = useRouter();
  return useAction(
    async () => {
      try {
        await api.post("/api/v1/auth/logout");
      } catch (failure) {
        // After 401 there is no session to end.
        if (!(failure instanceof ApiError && failure.status === 401)) throw failure;
      }
    },
    {
      onDone() {
        closeLive();
        queryClient.clear();
        clearDrafts();
        return router.navigate({ to: "/login", search: {} });
      },
    },
  );
}

function Sidebar({ openSwitcher, logOut }: { openSwitcher: () => void; logOut: () => void }) {
  const waiting = useWaiting();
  const row = "flex w-full items-center gap-2.5 rounded-md px-2 h-8 text-sm text-soft hover:bg-hover hover:text-text";
  return (
    <aside className="flex w-54 shrink-0 flex-col border-r border-line bg-sunken p-2.5">
      <div className="flex items-center gap-2 px-2 py-2 font-semibold">
        <Mark className="size-5" />
        {t("app.name")}
      </div>
      <button
        type="button"
        onClick={openSwitcher}
        className="mt-1 mb-3 flex h-8 items-center gap-2 rounded-md border border-line bg-ground px-2 text-sm text-faint hover:border-line-strong"
      >
        <Search className="size-4" aria-hidden />
        {t("nav.search")}
        <kbd className="ml-auto font-sans text-xs">{SWITCHER_KEY}</kbd>
      </button>
      <nav aria-label={t("app.navigation")} className="space-y-0.5">
        {ENTRIES.map((entry) => (
          <NavLink
            key={entry.to}
            entry={entry}
            waiting={waiting}
            className={row}
            active="bg-press text-text font-medium"
          />
        ))}
      </nav>
      <div className="mt-auto space-y-0.5">
        <a href={`${BASE}/docs`} className={row}>
          <span className="w-4 text-center font-mono text-xs" aria-hidden>
            {"{}"}
          </span>
          {t("nav.docs")}
        </a>
        <button type="button" onClick={logOut} className={row}>
          <LogOut className="size-4" aria-hidden />
          {t("nav.logout")}
        </button>
      </div>
    </aside>
  );
}

function TabBar({ openSwitcher, logOut }: { openSwitcher: () => void; logOut: () => void }) {
  const waiting = useWaiting();
  const navigate = useNavigate();
  const inSession = useRouterState({ select: (state) => state.location.pathname.startsWith("/sessions/") });
  if (inSession) return null; // the message box has the lower edge there
  return (
    <nav
      aria-label={t("app.navigation")}
      className="flex shrink-0 border-t border-line bg-ground pb-[env(safe-area-inset-bottom)]"
    >
      {ENTRIES.slice(0, TABS).map((entry) => (
        <NavLink
          key={entry.to}
          entry={entry}
          waiting={waiting}
          className="relative flex h-14 grow basis-0 flex-col items-center justify-center gap-0.5 text-xs text-soft"
          active="text-accent font-medium"
        />
      ))}
      <Menu
        label={t("app.menu")}
        className="flex h-14 grow basis-0 flex-col items-center justify-center gap-0.5 text-xs text-soft"
        trigger={
          <>
            <Ellipsis className="size-5" aria-hidden />
            {t("app.menu")}
          </>
        }
        items={[
          {
            label: t("nav.search"),
            icon: <Search className="size-4 text-faint" aria-hidden />,
            onSelect: openSwitcher,
          },
          ...ENTRIES.slice(TABS).map(({ to, label, icon: Icon }) => ({
            label,
            icon: <Icon className="size-4 text-faint" aria-hidden />,
            onSelect: () => void navigate({ to }),
          })),
          { label: t("nav.logout"), icon: <LogOut className="size-4 text-faint" aria-hidden />, onSelect: logOut },
        ]}
      />
    </nav>
  );
}

interface NavLinkProps {
  entry: Entry;
  waiting: number;
  className: string;
  active: string;
}

function NavLink({ entry: { to, label, icon: Icon }, waiting, className, active }: NavLinkProps) {
  const count = to === "/inbox" ? waiting : 0;
  // A session belongs to the list of sessions.
  const within = useRouterState({ select: ({ location }) => to === "/" && location.pathname.startsWith("/sessions/") });
  return (
    <Link
      to={to}
      activeOptions={{ exact: to === "/", includeSearch: false }}
      inactiveProps={within ? { className: cn(className, active), "aria-current": "true" } : { className }}
      activeProps={{ className: cn(className, active), "aria-current": "page" }}
    >
      <Icon className="size-4 max-md:size-5" aria-hidden />
      {label}
      {count > 0 && (
        <span className="rounded-full bg-waiting-soft px-1.5 text-xs font-semibold text-waiting tabular-nums ring-1 ring-waiting-line max-md:absolute max-md:top-1.5 max-md:left-1/2 max-md:ml-1.5 md:ml-auto">
          {count}
          <span className="sr-only"> {t("nav.waits", count)}</span>
        </span>
      )}
    </Link>
  );
}

function LimitedBanner() {
  const seconds = useRateLimitWait();
  if (seconds === 0) return null;
  return (
    <div className="flex items-center gap-2 border-b border-waiting-line bg-waiting-soft px-4 py-1.5 text-sm text-waiting">
      <Hourglass className="size-4 shrink-0" aria-hidden />
      <p>
        <span role="alert">{t("limited.banner")}</span>{" "}
        <span className="tabular-nums">{t("limited.seconds", seconds)}</span>.
      </p>
    </div>
  );
}

function LostBanner() {
  const lost = useLost();
  if (!lost) return null;
  return (
    <div
      role="alert"
      className="flex items-center gap-2 border-b border-waiting-line bg-waiting-soft px-4 py-1.5 text-sm text-waiting"
    >
      <WifiOff className="size-4 shrink-0" aria-hidden />
      {t("live.lost", clockTime(lost.lastAt ?? performance.timeOrigin))}
    </div>
  );
}
