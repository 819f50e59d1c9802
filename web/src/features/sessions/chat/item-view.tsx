import { Brain, Circle, CircleCheck, CircleDot, ListChecks, Wrench, type LucideIcon } from "lucide-react";
import { memo, useState } from "react";
import { t, type TextKey } from "@/text";
import { Button } from "@/ui/button";
import { cn } from "@/ui/cn";
import { CodeBlock, FIRST_CHARACTERS } from "@/ui/code/code";
import { Age } from "@/ui/time";
import { Fold, Row, firstLine } from "./fold";
import type { Item } from "./items";
import { Markdown } from "./markdown";
import { currentStep, stepsOf, type Step } from "./plan";
import { ToolCall } from "./tool-call";

interface ItemProps {
  item: Item;
  /** The name of the agent. */
  name: string;
  generating: boolean;
  /** Whether what is being written is read off a terminal's screen. */
  screen?: boolean | undefined;
}

/** A row of the chat. */
export const ItemView = memo(function ItemView({ item, name, generating, screen }: ItemProps) {
  if (item.kind === "draft") {
    return (
      <Row className={item.continues && "py-1.5"}>
        {!item.continues && <Byline who={name} />}
        {screen ? <ScreenText text={item.draft.text} /> : <Markdown text={item.draft.text} streaming />}
      </Row>
    );
  }
  if (item.kind === "tool") return <ToolCall call={item.call} result={item.result} running={generating && item.open} />;
  const { message } = item;
  if (message.kind === "thinking") {
    const steps = stepsOf(message.content);
    if (steps) return <Plan steps={steps} />;
    return (
      <Fold icon={<Brain aria-hidden />} summary={t("session.thinking")} more={firstLine(message.content)}>
        <div className="text-sm text-soft">
          <Long text={message.content}>{(text) => <Markdown text={text} />}</Long>
        </div>
      </Fold>
    );
  }
  if (message.kind === "tool_result") {
    return (
      <Fold icon={<Wrench aria-hidden />} summary={t("session.result")} more={firstLine(message.content)}>
        <CodeBlock text={message.content} />
      </Fold>
    );
  }
  if (message.role === "user") {
    return (
      <Row>
        <div className="rounded-lg border border-line bg-sunken px-3.5 py-2.5">
          <Byline who={t("session.you")} at={message.timestamp} />
          <Long text={message.content}>{(text) => <p className="whitespace-pre-wrap wrap-anywhere">{text}</p>}</Long>
        </div>
      </Row>
    );
  }
  return (
    <Row className={item.continues && "py-1.5"}>
      {!item.continues && <Byline who={message.role === "system" ? "system" : name} at={message.timestamp} />}
      <Long text={message.content}>
        {(text) => (message.source === "screen" ? <ScreenText text={text} /> : <Markdown text={text} />)}
      </Long>
    </Row>
  );
});

/** What a terminal shows: its lines and columns have a meaning, its characters are not Markdown. */
const ScreenText = ({ text }: { text: string }) => (
  <pre className="font-mono text-sm whitespace-pre-wrap wrap-anywhere">{text}</pre>
);

const STEPS: Record<Step["state"], { icon: LucideIcon; look: string; label: TextKey }> = {
  done: { icon: CircleCheck, look: "text-good", label: "session.step.done" },
  current: { icon: CircleDot, look: "text-working", label: "session.step.current" },
  open: { icon: Circle, look: "text-faint", label: "session.step.open" },
};

/** The agent's plan: in one line the step that it is at, opened all of them. */
function Plan({ steps }: { steps: Step[] }) {
  const done = steps.filter(({ state }) => state === "done").length;
  return (
    <Fold
      icon={<ListChecks aria-hidden />}
      summary={t("session.plan", done, steps.length)}
      more={currentStep(steps)?.text}
    >
      <ol className="space-y-1 text-sm">
        {steps.map(({ text, state }, i) => {
          const { icon: Icon, look, label } = STEPS[state];
          return (
            <li key={i} className={cn("flex gap-2 wrap-anywhere", state === "current" ? "font-medium" : "text-soft")}>
              <Icon role="img" aria-label={t(label)} className={cn("mt-0.5 size-4 shrink-0", look)} />
              {text}
            </li>
          );
        })}
      </ol>
    </Fold>
  );
}

/** The beginning of a very long text, with a button that shows the rest. */
function Long({ text, children }: { text: string; children: (text: string) => React.ReactNode }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= FIRST_CHARACTERS) return children(text);
  return (
    <>
      {children(text.slice(0, FIRST_CHARACTERS))}
      <Button look="quiet" onClick={() => setWhole(true)}>
        {t("session.cut")}
      </Button>
    </>
  );
}

function Byline({ who, at }: { who: string; at?: number }) {
  return (
    <div className="mb-0.5 flex items-baseline gap-2 text-xs text-faint">
      <span className="min-w-0 truncate font-semibold text-soft">{who}</span>
      {at !== undefined && <Age at={at} />}
    </div>
  );
}
