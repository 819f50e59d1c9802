import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useEffect, useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { queryClient } from "@/api/query-client";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { Alert } from "@/ui/feedback";
import { Field, PasswordField } from "@/ui/field";
import { InlineCode } from "@/ui/inline-code";
import { Mark } from "@/ui/mark";
import { useTitle } from "@/ui/page";
import { safeNext } from "./login-redirect";

const route = getRouteApi("/login");
const ONCE = "#once=";

/** Return the token of a one-time link, and take it out of the address and the history. */
function takeToken(): string | undefined {
  const { hash, pathname, search } = location;
  if (!hash.startsWith(ONCE)) return undefined;
  history.replaceState(history.state, "", pathname + search);
  return hash.slice(ONCE.length);
}

export function Login() {
  const { next, over } = route.useSearch();
  const router = useRouter();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const { run, busy, error } = useAction((logIn: () => Promise<unknown>) => logIn(), {
    onDone() {
      // What another user may have seen before is not shown again.
      queryClient.clear();
      return router.navigate({ href: safeNext(next), replace: true });
    },
    onFailure: () => setPassword(""),
  });
  useTitle(t("login.title"));

  useEffect(() => {
    const take = () => {
      const token = takeToken();
      if (token) run(() => api.post("/api/v1/auth/link", { body: { token } }));
    };
    take();
    // A link opened in a tab that is at this page already changes only the fragment.
    window.addEventListener("hashchange", take);
    return () => window.removeEventListener("hashchange", take);
  }, [run]);

  function submit(event: FormEvent) {
    event.preventDefault();
    run(() => api.post("/api/v1/auth/login", { body: { email, password } }));
  }

  return (
    <main className="flex min-h-full items-center justify-center bg-sunken p-4">
      <form onSubmit={submit} className="w-full max-w-88 space-y-4 rounded-lg border border-line bg-ground p-6">
        <div className="flex items-center gap-2.5">
          <Mark className="size-6" />
          <h1 className="text-lg">{t("login.title")}</h1>
        </div>
        {over && !error && (
          <p role="status" className="text-sm text-soft">
            {t("login.over")}
          </p>
        )}
        {error && <Alert>{error}</Alert>}
        <Field
          label={t("login.email")}
          type="email"
          autoComplete="username"
          required
          autoFocus
          value={email}
          onChange={(event) => setEmail(event.target.value)}
        />
        <PasswordField value={password} onChange={(event) => setPassword(event.target.value)} />
        <Button type="submit" look="primary" busy={busy} className="w-full">
          {t("login.submit")}
        </Button>
        <p className="text-xs text-faint">
          <InlineCode text={t("login.hint")} />
        </p>
      </form>
    </main>
  );
}
