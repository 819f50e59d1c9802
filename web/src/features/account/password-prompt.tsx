import { useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Alert } from "@/ui/feedback";
import { PasswordField } from "@/ui/field";

/** Asks for the password in place when an action needs a recent login. */
export default function PasswordPrompt({ finish }: { finish: (given: boolean) => void }) {
  return (
    <Dialog open onOpenChange={(open) => !open && finish(false)} title={t("recent.title")}>
      <PasswordForm finish={finish} />
    </Dialog>
  );
}

function PasswordForm({ finish }: { finish: (given: boolean) => void }) {
  const [password, setPassword] = useState("");
  const { run, busy, error } = useAction(() => api.post("/api/v1/auth/reauthenticate", { body: { password } }), {
    onDone: () => finish(true),
    onFailure: () => setPassword(""),
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    event.stopPropagation();
    run();
  }
  return (
    <form onSubmit={submit} className="space-y-4">
      <p className="text-sm text-soft">{t("recent.why")}</p>
      {error && <Alert>{error}</Alert>}
      <PasswordField autoFocus value={password} onChange={(event) => setPassword(event.target.value)} />
      <div className="flex justify-end">
        <Button type="submit" look="primary" busy={busy}>
          {t("recent.submit")}
        </Button>
      </div>
    </form>
  );
}
