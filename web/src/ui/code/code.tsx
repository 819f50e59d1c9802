import { useEffect, useMemo, useState, type ReactNode } from "react";
import { t } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { CopyButton } from "@/ui/copy";
import { highlight, isColoured, remembered } from "./colours";
import { languageOf, type Language } from "./languages";

/** What is shown of a long text until all of it is asked for. */
export const FIRST_CHARACTERS = 30_000;

/**
 * Return a text with colours, or undefined while there are none. Text that still changes is coloured
 * when it rests.
 */
export function useHighlighted(text: string, language: Language | undefined): ReactNode {
  const [, setReady] = useState<string>();
  const coloured = useMemo(() => language !== undefined && isColoured(text), [text, language]);
  const nodes = coloured && language ? remembered(text, language) : undefined;
  useEffect(() => {
    if (!coloured || nodes || !language) return;
    let current = true;
    const timer = setTimeout(() => void highlight(text, language).then(() => current && setReady(text)), 120);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [coloured, nodes, text, language]);
  return nodes;
}

interface CodeProps {
  text: string;
  /** What the author calls the language, or the name of a file. */
  language?: string | undefined;
}

/** Code with a button that copies it. */
export function CodeBlock({ text, language }: CodeProps) {
  const [whole, setWhole] = useState(false);
  const cut = !whole && text.length > FIRST_CHARACTERS;
  const shown = cut ? text.slice(0, FIRST_CHARACTERS) : text;
  const highlighted = useHighlighted(shown, languageOf(language));
  return (
    <div>
      <div className="group/code relative rounded-md border border-line bg-sunken pointer-coarse:flex">
        <pre className={cn("min-w-0 grow overflow-x-auto px-3 py-2.5", whole && "max-h-[70dvh]")} tabIndex={0}>
          <code className="font-mono text-sm">{highlighted ?? shown}</code>
        </pre>
        {/* Over the code while a pointer is there; where there is none, beside it. */}
        <div className="absolute top-0.5 right-0.5 rounded-md bg-sunken opacity-0 group-focus-within/code:opacity-100 group-hover/code:opacity-100 pointer-coarse:static pointer-coarse:opacity-100">
          <CopyButton text={text} />
        </div>
      </div>
      {cut && (
        <Button look="quiet" onClick={() => setWhole(true)}>
          {t("session.cut")}
        </Button>
      )}
    </div>
  );
}
