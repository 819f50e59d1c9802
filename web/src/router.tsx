import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from "@tanstack/react-router";
import { ApiError, BASE_PATH } from "./api/client";
import { accountQuery, queryClient, userOf } from "./api/queries";
import { safeNext } from "./next";
import { FailedPage, NotFoundPage } from "./routes/failed";
import { Login } from "./routes/login";
import { Shell } from "./routes/shell";
import { SessionsPage } from "./routes/sessions";
import { keepDraftsOf } from "./session/drafts";
import { loadCode, readSession } from "./session/load";

const root = createRootRoute({ component: Outlet, notFoundComponent: NotFoundPage });

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  component: Login,
  validateSearch: (search: Record<string, unknown>): { next?: string; over?: boolean } => ({
    ...(search.next !== undefined ? { next: safeNext(search.next) } : {}),
    ...(search.over ? { over: true } : {}),
  }),
});

const shell = createRoute({
  getParentRoute: () => root,
  id: "shell",
  component: Shell,
  errorComponent: FailedPage,
  async beforeLoad({ location: to }) {
    try {
      keepDraftsOf(userOf(await queryClient.ensureQueryData(accountQuery)));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      throw redirect({ to: "/login", search: to.href === "/" ? {} : { next: to.href } });
    }
  },
});

const sessions = createRoute({ getParentRoute: () => shell, path: "/", component: SessionsPage });
const inbox = createRoute({
  getParentRoute: () => shell,
  path: "/inbox",
  component: lazyRouteComponent(() => import("./routes/inbox"), "InboxPage"),
});
const machines = createRoute({
  getParentRoute: () => shell,
  path: "/machines",
  component: lazyRouteComponent(() => import("./routes/machines"), "MachinesPage"),
});
const machine = createRoute({
  getParentRoute: () => shell,
  path: "/machines/$daemonId",
  component: lazyRouteComponent(() => import("./routes/machine"), "MachinePage"),
});
const session = createRoute({
  getParentRoute: () => shell,
  path: "/sessions/$targetId",
  component: lazyRouteComponent(() => import("./session/page"), "SessionPage"),
  loader: ({ params, preload }) => {
    loadCode();
    // A pointer over a row of the list must not ask the machine.
    if (!preload) readSession(params.targetId);
  },
  validateSearch: (search: Record<string, unknown>): { tab?: Tab; path?: string } => ({
    ...(TABS.includes(search.tab as Tab) && search.tab !== "chat" ? { tab: search.tab as Tab } : {}),
    ...(search.tab === "files" && search.path ? { path: String(search.path) } : {}),
  }),
});
const account = createRoute({
  getParentRoute: () => shell,
  path: "/account",
  component: lazyRouteComponent(() => import("./routes/account"), "AccountPage"),
});

const history = createRoute({
  getParentRoute: () => shell,
  path: "/history",
  component: lazyRouteComponent(() => import("./routes/history"), "HistoryPage"),
});
const webhooks = createRoute({
  getParentRoute: () => shell,
  path: "/webhooks",
  component: lazyRouteComponent(() => import("./routes/webhooks"), "WebhooksPage"),
});
const webhook = createRoute({
  getParentRoute: () => shell,
  path: "/webhooks/$webhookId",
  component: lazyRouteComponent(() => import("./routes/webhook"), "WebhookPage"),
});
const device = createRoute({
  getParentRoute: () => shell,
  path: "/device",
  component: lazyRouteComponent(() => import("./routes/device"), "DevicePage"),
  // A code of digits only is read as a number.
  validateSearch: (search: Record<string, unknown>): { code?: string } =>
    typeof search.code === "string" || typeof search.code === "number" ? { code: String(search.code).slice(0, 64) } : {},
});

export type Tab = "chat" | "terminal" | "changes" | "files" | "debug";
const TABS: Tab[] = ["chat", "terminal", "changes", "files", "debug"];

export const router = createRouter({
  routeTree: root.addChildren([
    login,
    shell.addChildren([sessions, inbox, machines, machine, session, history, webhooks, webhook, device, account]),
  ]),
  basepath: BASE_PATH,
  defaultPreload: "intent",
  defaultNotFoundComponent: NotFoundPage,
  scrollRestoration: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
