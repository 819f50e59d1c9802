import { Fragment } from "react";

/** A sentence in which what stands between backticks, such as a command, is shown as code. */
export function InlineCode({ text }: { text: string }) {
  return text.split(/`([^`\n]+)`/).map((part, i) =>
    i % 2 === 0 ? (
      <Fragment key={i}>{part}</Fragment>
    ) : (
      <code key={i} className="rounded-sm bg-press px-1 font-mono text-[0.92em]">
        {part}
      </code>
    ),
  );
}
