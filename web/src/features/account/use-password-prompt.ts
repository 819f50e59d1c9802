import { useCallback, useRef, useState } from "react";

interface Prompt {
  open: boolean;
  ask: () => Promise<boolean>;
  finish: (given: boolean) => void;
}

/** Whether the password is asked for, and the answer to those who wait for it. */
export function usePasswordPrompt(): Prompt {
  const [open, setOpen] = useState(false);
  const waiting = useRef<((given: boolean) => void)[]>([]);
  const ask = useCallback(() => {
    setOpen(true);
    return new Promise<boolean>((resolve) => waiting.current.push(resolve));
  }, []);
  const finish = useCallback((given: boolean) => {
    setOpen(false);
    waiting.current.splice(0).forEach((resolve) => resolve(given));
  }, []);
  return { open, ask, finish };
}
