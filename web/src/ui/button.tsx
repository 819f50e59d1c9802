import { Loader2 } from "lucide-react";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { cn } from "./cn";

type Look = "primary" | "plain" | "quiet" | "danger";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent-fill text-on-accent hover:bg-accent-fill-hover border-transparent",
  plain: "bg-raised text-text border-line-strong hover:bg-hover active:bg-press",
  quiet: "bg-transparent text-soft border-transparent hover:bg-hover hover:text-text active:bg-press",
  danger: "bg-raised text-bad border-bad-line hover:bg-bad-soft",
};

export const buttonClass = (look: Look = "plain", icon = false) =>
  cn(
    "inline-flex shrink-0 items-center justify-center gap-1.5 rounded-md border text-sm font-medium whitespace-nowrap select-none",
    "transition-colors duration-75 disabled:opacity-50 disabled:pointer-events-none",
    "h-8 pointer-coarse:h-10",
    icon ? "w-8 pointer-coarse:w-10" : "px-3",
    LOOKS[look],
  );

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look;
  icon?: ReactNode;
  busy?: boolean;
}

export function Button({ look = "plain", icon, busy, className, children, disabled, ...rest }: Props) {
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      className={cn(buttonClass(look, !children), className)}
    >
      {busy ? <Loader2 className="size-4 animate-turn" aria-hidden /> : icon}
      {children}
    </button>
  );
}
