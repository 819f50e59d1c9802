import { Info, TriangleAlert } from "lucide-react";
import { useEffect, useEffectEvent, type ReactNode } from "react";
import { cn } from "./cn";
import { InlineCode } from "./inline-code";

interface AlertProps {
  children: ReactNode;
  /** A fact that is no failure. */
  neutral?: boolean | undefined;
  className?: string | undefined;
}

export function Alert({ children, neutral, className }: AlertProps) {
  const Icon = neutral ? Info : TriangleAlert;
  return (
    <div
      role="alert"
      className={cn(
        "flex gap-2 rounded-md border px-3 py-2 text-sm whitespace-pre-line",
        neutral ? "border-line bg-raised text-soft" : "border-bad-line bg-bad-soft text-bad",
        className,
      )}
    >
      <Icon className="mt-0.5 size-4 shrink-0" aria-hidden />
      <div className="min-w-0 wrap-anywhere">
        {typeof children === "string" ? <InlineCode text={children} /> : children}
      </div>
    </div>
  );
}

/** A sentence about what is not there any more; `onEnd` is called when it has been there for 10 s. */
export function Notice({
  text,
  onEnd,
  neutral,
  className,
}: { text: string; onEnd: () => void } & Omit<AlertProps, "children">) {
  const end = useEffectEvent(onEnd);
  useEffect(() => {
    const timer = setTimeout(end, 10_000);
    return () => clearTimeout(timer);
  }, [text]); // the time begins with the sentence
  return (
    <Alert neutral={neutral} className={className}>
      {text}
    </Alert>
  );
}

interface EmptyProps {
  icon: ReactNode;
  title: string;
  hint?: string;
  /** "h1" where nothing else on the page is its heading. */
  heading?: "h1" | "h2";
  children?: ReactNode;
}

export function Empty({ icon, title, hint, heading: Heading = "h2", children }: EmptyProps) {
  return (
    <div className="mx-auto flex max-w-sm flex-col items-center px-6 py-16 text-center">
      <div className="mb-3 text-faint [&_svg]:size-7 [&_svg]:stroke-[1.5]" aria-hidden>
        {icon}
      </div>
      <Heading className="text-base">{title}</Heading>
      {hint && <p className="mt-1 text-sm text-soft">{hint}</p>}
      {children && <div className="mt-4 flex gap-2">{children}</div>}
    </div>
  );
}

export function Skeleton({ rows = 4 }: { rows?: number }) {
  return (
    <div aria-hidden className="space-y-3 p-4">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} className="h-4 animate-pulse rounded-sm bg-press" style={{ width: `${75 - 13 * (i % 3)}%` }} />
      ))}
    </div>
  );
}
