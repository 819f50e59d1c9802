import { AlertDialog } from "@base-ui/react/alert-dialog";
import { Dialog as Base } from "@base-ui/react/dialog";
import type { QueryKey } from "@tanstack/react-query";
import { X } from "lucide-react";
import type { ReactNode, RefObject } from "react";
import { useAction } from "@/api/use-action";
import { t } from "@/text";
import { Button, buttonClass } from "./button";
import { cn } from "./cn";
import { Alert } from "./feedback";

const BACKDROP = "fixed inset-0 z-40 bg-black/40";
const POPUP =
  "fixed z-50 inset-x-0 bottom-0 max-h-[92dvh] overflow-y-auto rounded-t-lg border border-line bg-raised p-4 shadow-float outline-none " +
  "sm:inset-x-auto sm:bottom-auto sm:left-1/2 sm:top-[14vh] sm:max-h-[76vh] sm:w-full sm:max-w-md sm:-translate-x-1/2 sm:rounded-lg sm:p-5";

interface DialogProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  children: ReactNode;
  wide?: boolean;
  /** The field that has the focus first; on a touch screen none has, since its keyboard would hide the rest. */
  first?: RefObject<HTMLElement | null>;
  className?: string;
}

export function Dialog({ open, onOpenChange, title, children, wide, first, className }: DialogProps) {
  return (
    <Base.Root open={open} onOpenChange={onOpenChange}>
      <Base.Portal>
        <Base.Backdrop className={BACKDROP} />
        <Base.Popup
          className={cn(POPUP, wide && "sm:max-w-xl", className)}
          initialFocus={() => (first && matchMedia("(pointer: fine)").matches ? first.current : true)}
        >
          <div className="mb-4 flex items-start justify-between gap-4">
            <Base.Title className="text-lg">{title}</Base.Title>
            <Base.Close className={cn(buttonClass("quiet", true), "-mt-1 -mr-2")} aria-label={t("app.close")}>
              <X className="size-4" aria-hidden />
            </Base.Close>
          </div>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

/** The buttons at the end of a dialog's form: in view, however long the form is. */
export const DialogActions = ({ children }: { children: ReactNode }) => (
  <div className="sticky -bottom-4 -mx-4 -mb-4 flex justify-end bg-raised p-4 pt-3 sm:-bottom-5 sm:-mx-5 sm:-mb-5 sm:p-5 sm:pt-3">
    {children}
  </div>
);

interface ConfirmProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  why: string;
  /** The word of the action, which the confirming button repeats. */
  action: string;
  /** Ends when the service has done it; a refusal is shown in the open dialog. */
  onConfirm: () => Promise<unknown>;
  /** What the action changes. */
  changes?: QueryKey[];
  danger?: boolean;
  /** What else is asked for. */
  children?: ReactNode;
}

export function Confirm({
  open,
  onOpenChange,
  title,
  why,
  action,
  onConfirm,
  changes,
  danger = true,
  children,
}: ConfirmProps) {
  const { run, busy, error, reset } = useAction(onConfirm, { changes, onDone: () => onOpenChange(false) });
  return (
    <AlertDialog.Root
      open={open}
      onOpenChange={(next) => {
        if (busy) return; // the result is shown here
        reset();
        onOpenChange(next);
      }}
    >
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className={BACKDROP} />
        <AlertDialog.Popup className={POPUP}>
          <AlertDialog.Title className="text-lg">{title}</AlertDialog.Title>
          <AlertDialog.Description className="mt-2 text-soft">{why}</AlertDialog.Description>
          {children}
          {error && <Alert className="mt-3">{error}</Alert>}
          <div className="mt-5 flex justify-end gap-2">
            <AlertDialog.Close className={buttonClass("plain")} disabled={busy}>
              {t("app.cancel")}
            </AlertDialog.Close>
            <Button look={danger ? "danger" : "primary"} busy={busy} onClick={() => run()}>
              {action}
            </Button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
