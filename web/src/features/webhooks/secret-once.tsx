import { KeyRound } from "lucide-react";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy";

/** A signing secret. The service shows it once, so it is gone when this is closed. */
export function SecretOnce({ secret, onDone, done }: { secret: string; onDone: () => void; done: string }) {
  return (
    <div className="space-y-4">
      <p className="flex gap-2 text-sm text-soft">
        <KeyRound className="mt-0.5 size-4 shrink-0 text-faint" aria-hidden />
        {t("webhooks.secretOnce")}
      </p>
      <div className="flex items-center gap-2 rounded-md border border-line bg-sunken py-1 pr-1 pl-3">
        <code className="min-w-0 grow font-mono text-sm wrap-anywhere">{secret}</code>
        <CopyButton text={secret} />
      </div>
      <div className="flex justify-end">
        <Button look="primary" onClick={onDone}>
          {done}
        </Button>
      </div>
    </div>
  );
}
