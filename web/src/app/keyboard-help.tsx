import { Fragment } from "react";
import { t } from "@/text";
import { Dialog } from "@/ui/dialog";
import { SWITCHER_KEY } from "@/ui/platform";

const KEYS: [string[], string][] = [
  [["g", "s"], t("keys.sessions")],
  [["g", "i"], t("keys.inbox")],
  [["g", "m"], t("keys.machines")],
  [["g", "h"], t("keys.history")],
  [["/"], t("keys.filter")],
  [["j", "k"], t("keys.select")],
  [["a", "r"], t("keys.answer")],
  [["1", "9"], t("keys.choose")],
  [[SWITCHER_KEY], t("keys.switch")],
  [["?"], t("keys.help")],
];

export default function Keys({ onClose }: { onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={t("keys.title")}>
      <dl className="grid grid-cols-[auto_1fr] items-center gap-x-5 gap-y-2.5 text-sm">
        {KEYS.map(([keys, what]) => (
          <div key={what} className="contents">
            <dt className="flex gap-1">
              {keys.map((key, i) => (
                <Fragment key={key}>
                  {i > 0 && " "}
                  <kbd className="min-w-6 rounded-sm border border-line-strong bg-sunken px-1.5 text-center font-sans text-xs leading-5">
                    {key}
                  </kbd>
                </Fragment>
              ))}
            </dt>
            <dd className="text-soft">{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
