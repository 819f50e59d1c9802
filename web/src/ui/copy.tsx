import { Check, Copy as CopyIcon } from "lucide-react";
import { useEffect, useState } from "react";
import { t } from "@/text";
import { Button } from "./button";

/** Copy a text; also where the page has no secure context, and so no clipboard API. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const Icon = done ? Check : CopyIcon;
  const word = done ? t("app.copied") : (label ?? t("app.copy"));
  return (
    <Button
      look={label ? "plain" : "quiet"}
      icon={<Icon className="size-4" aria-hidden />}
      aria-label={word}
      title={word}
      onClick={() => void copyText(text).then(() => setDone(true))}
    >
      {label && word}
    </Button>
  );
}
