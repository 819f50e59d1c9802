import type { LinkProps } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";
import { t } from "@/text";
import { BackLink } from "./back-link";

interface PageProps {
  title: string;
  /** What is beside the heading. */
  actions?: ReactNode;
  /** The list that this page belongs to. */
  back?: { to: LinkProps["to"]; label: string };
  children: ReactNode;
}

/** A page: its heading, its actions, and what scrolls below them. */
export function Page({ title, actions, back, children }: PageProps) {
  useTitle(title);
  return (
    <div className="flex h-full flex-col">
      <header className="flex min-h-13 shrink-0 items-center justify-between gap-3 border-b border-line px-4 sm:px-6">
        <div className="flex min-w-0 items-center gap-1">
          {back && <BackLink {...back} className="-ml-2" />}
          <h1 className="truncate text-base">{title}</h1>
        </div>
        <div className="flex items-center gap-2">{actions}</div>
      </header>
      <div data-page className="min-h-0 grow overflow-y-auto">
        {children}
      </div>
    </div>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
  }, [title]);
}
