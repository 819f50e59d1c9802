/** A step of an agent's plan. */
export interface Step {
  text: string;
  state: "done" | "current" | "open";
}

const STATES: Record<string, Step["state"]> = { x: "done", "~": "current", " ": "open" };

/** Return the steps of a plan, which is a message with one line for each; undefined for other messages. */
export function stepsOf(content: string): Step[] | undefined {
  const lines = content.split("\n").map((line) => /^- \[([x~ ])\] (.*)$/.exec(line));
  const steps = lines.map((match): Step | undefined => {
    const state = match && STATES[match[1] as string];
    return match && state ? { text: match[2] as string, state } : undefined;
  });
  return steps.every((step) => step !== undefined) ? steps : undefined;
}

/** Return the step that an agent is at: the one it works on, or else the first that is not done. */
export const currentStep = (steps: Step[]): Step | undefined =>
  steps.find(({ state }) => state === "current") ?? steps.find(({ state }) => state === "open");
