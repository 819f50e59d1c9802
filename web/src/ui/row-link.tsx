import { createLink } from "@tanstack/react-router";
import type { ComponentProps } from "react";
import { cn } from "./cn";

const LOOK =
  "truncate outline-none after:absolute after:inset-0 " +
  "focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-accent";

/** The link of a row in a list: the whole row, which is `relative`, can be clicked; `j` and `k` focus it. */
export const RowLink = createLink(function RowLink({ className, children, ...rest }: ComponentProps<"a">) {
  return (
    <a data-row className={cn(LOOK, className)} {...rest}>
      {children}
    </a>
  );
});
