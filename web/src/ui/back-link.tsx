import { Link, useRouter, type LinkProps } from "@tanstack/react-router";
import { ArrowLeft } from "lucide-react";
import { buttonClass } from "./button";
import { cn } from "./cn";
import { cameFrom } from "./return-place";

/** Leads to the list that a page belongs to; to where the person was in it, if they came from there. */
export function BackLink({ to, label, className }: { to: LinkProps["to"]; label: string; className?: string }) {
  const router = useRouter();
  return (
    <Link
      to={to}
      aria-label={label}
      title={label}
      className={cn(buttonClass("quiet", true), className)}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || !cameFrom(String(to))) return;
        event.preventDefault();
        router.history.back();
      }}
    >
      <ArrowLeft className="size-4" aria-hidden />
    </Link>
  );
}
