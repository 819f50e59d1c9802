import { useEffect, type ReactNode } from "react";
import { t } from "@/text";

interface PageProps {
  title: string;
  /** What is beside the heading. */
  actions?: ReactNode;
  children: ReactNode;
}

/** A page: its heading, its actions, and what scrolls below them. */
export function Page({ title, actions, children }: PageProps) {
  useTitle(title);
  return (
    <div className="flex h-full flex-col">
      <header className="flex min-h-13 shrink-0 items-center justify-between gap-3 border-b border-line px-4 sm:px-6">
        <h1 className="truncate text-base">{title}</h1>
        <div className="flex items-center gap-2">{actions}</div>
      </header>
      <div className="min-h-0 grow overflow-y-auto">{children}</div>
    </div>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
  }, [title]);
}
