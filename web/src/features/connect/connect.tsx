import { useNavigate } from "@tanstack/react-router";
import { CircleCheck, Loader2 } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { api, BASE } from "@/api/client";
import { useAction } from "@/api/use-action";
import { t, visible } from "@/text";
import { clockTime } from "@/text/format";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy";
import { Dialog } from "@/ui/dialog";
import { keepDraft, readDraft } from "@/ui/drafts";
import { Alert } from "@/ui/feedback";
import { Field } from "@/ui/field";
import { connectCommands } from "./connect-commands";
import { useJoinedMachine } from "./use-joined-machine";

interface Code {
  code: string;
  expiresAt: number;
}

/** The name of what was typed: the page of machines opens with it after a new log-in. */
const DRAFT = "connect";

/** Connect a machine: its name, then a code and the two commands, and then the machine as soon as it is there. */
export default function Connect({ onClose }: { onClose: () => void }) {
  const [code, setCode] = useState<Code>();
  const [nickname, setNickname] = useState(() => readDraft(DRAFT));
  const name = useRef<HTMLInputElement>(null);

  useEffect(() => keepDraft(DRAFT, nickname), [nickname]);
  const close = () => {
    keepDraft(DRAFT, "");
    onClose();
  };

  // Each code is a credential and a record in the audit: it is made when somebody wants the commands.
  const { run, busy, error } = useAction(() => api.post("/api/v1/auth/enroll/code", { body: {} }), { onDone: setCode });

  return (
    <Dialog open onOpenChange={(open) => !open && close()} title={t("connect.title")} wide first={name}>
      <form
        className="space-y-4"
        onSubmit={(event) => {
          event.preventDefault();
          if (!code) run();
        }}
      >
        <Field
          ref={name}
          label={t("connect.name")}
          hint={t("connect.nameHint")}
          maxLength={256}
          value={nickname}
          onChange={(event) => setNickname(event.target.value)}
        />
        {error && <Alert>{error}</Alert>}
        {!code && (
          <div className="flex justify-end">
            <Button type="submit" look="primary" busy={busy}>
              {t("connect.commands")}
            </Button>
          </div>
        )}
      </form>
      {code && (
        <div className="mt-4">
          <Waiting key={code.code} code={code} nickname={nickname.trim()} onClose={close} again={() => run()} />
        </div>
      )}
    </Dialog>
  );
}

interface WaitingProps {
  code: Code;
  nickname: string;
  onClose: () => void;
  again: () => void;
}

function Waiting({ code, nickname, onClose, again }: WaitingProps) {
  const navigate = useNavigate();
  const joined = useJoinedMachine();
  const [expired, setExpired] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setExpired(true), Math.max(0, code.expiresAt - Date.now()));
    return () => clearTimeout(timer);
  }, [code.expiresAt]);

  return (
    <div className="space-y-4">
      <p className="text-sm">{t("connect.run")}</p>
      {connectCommands(BASE, code.code, nickname).map((text) => (
        <Command key={text} text={text} />
      ))}
      <p className="text-xs text-faint">{t("connect.install")}</p>
      <div
        aria-live="polite"
        className="flex min-h-8 items-center justify-between gap-3 border-t border-line pt-4 text-sm"
      >
        {joined ? (
          <>
            <span className="flex items-center gap-2 text-good">
              <CircleCheck className="size-4" aria-hidden />
              {t("connect.done", visible(joined.nickname))}
            </span>
            <Button
              look="primary"
              onClick={() => {
                onClose();
                void navigate({ to: "/machines/$daemonId", params: { daemonId: joined.id } });
              }}
            >
              {t("connect.show")}
            </Button>
          </>
        ) : expired ? (
          <>
            <span className="text-bad">{t("connect.expired")}</span>
            <Button onClick={again}>{t("connect.again")}</Button>
          </>
        ) : (
          <>
            <span className="flex items-center gap-2 text-soft">
              <Loader2 className="size-4 animate-turn" aria-hidden />
              {t("connect.waiting")}
            </span>
            <span className="text-xs text-faint">{t("connect.valid", clockTime(code.expiresAt))}</span>
          </>
        )}
      </div>
    </div>
  );
}

const Command = ({ text }: { text: string }) => (
  <div className="flex items-center gap-2 rounded-md border border-line bg-sunken py-1 pr-1 pl-3">
    <code className="min-w-0 grow font-mono text-sm wrap-anywhere">{text}</code>
    <CopyButton text={text} />
  </div>
);
