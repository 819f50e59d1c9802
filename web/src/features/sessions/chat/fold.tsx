import { ChevronRight } from "lucide-react";
import { useState, type ReactNode } from "react";
import { cn } from "@/ui/cn";

/** A row of the chat. */
export const Row = ({ children, className }: { children: ReactNode; className?: string | false }) => (
  <div className={cn("mx-auto max-w-3xl py-2.5", className)}>{children}</div>
);

interface FoldProps {
  icon: ReactNode;
  summary: ReactNode;
  more?: string;
  /** What stands at the end of the line. */
  note?: ReactNode;
  children: ReactNode;
}

/** A row of the chat in one line, which opens. */
export function Fold({ icon, summary, more, note, children }: FoldProps) {
  const [open, setOpen] = useState(false);
  return (
    <Row className="py-0.5">
      <div className="rounded-md">
        <button
          type="button"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="-mx-1.5 flex h-7 w-[calc(100%+0.75rem)] items-center gap-1.5 rounded-md px-1.5 text-left text-sm text-soft hover:bg-hover pointer-coarse:h-9"
        >
          <ChevronRight
            className={cn("size-3.5 shrink-0 text-faint transition-transform", open && "rotate-90")}
            aria-hidden
          />
          <span className="shrink-0 text-faint [&_svg]:size-3.5">{icon}</span>
          <span className="max-w-[80%] min-w-12 shrink truncate font-medium">{summary}</span>
          {more && <span className="min-w-0 flex-1 truncate font-mono text-xs text-faint">{more}</span>}
          {note && <span className="ml-auto flex shrink-0 items-center gap-2 pl-2 text-xs">{note}</span>}
        </button>
        {open && <div className="mt-1 mb-2 space-y-2 border-l-2 border-line pl-4">{children}</div>}
      </div>
    </Row>
  );
}

export const firstLine = (text: string) => (text.trimStart().split("\n", 1)[0] ?? "").slice(0, 160);
