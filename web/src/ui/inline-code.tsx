import { Fragment } from "react";

/** A sentence in which what stands between backticks, such as a command, is shown as code. */
export function InlineCode({ text }: { text: string }) {
  return text.split(/`([^`\n]+)`/).map((part, i) =>
    i % 2 === 0 ? (
      <Fragment key={i}>{part}</Fragment>
    ) : (
      <code key={i} className="font-mono text-[0.96em] wrap-anywhere">
        {part}
      </code>
    ),
  );
}
