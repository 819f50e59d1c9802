import { useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";

const TYPING_MS = 250;

/**
 * Return the text of a list's filter as it is typed, and what changes it. It follows the address,
 * which `write` changes as soon as the typing pauses.
 */
export function useFilterText(
  inAddress = "",
  write: (text: string) => Promise<void>,
): [string, (text: string) => void] {
  const [text, setText] = useState(inAddress);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const writing = useRef(0);
  const router = useRouter();
  useEffect(() => {
    // A person who goes to another page while this waits would be brought back by it.
    const unsubscribe = router.subscribe("onBeforeNavigate", ({ pathChanged }) => {
      if (pathChanged) clearTimeout(timer.current);
    });
    return () => {
      unsubscribe();
      clearTimeout(timer.current);
    };
  }, [router]);
  useEffect(() => {
    // Changed by a link or the browser's buttons, not by what is being typed here.
    if (timer.current === undefined && writing.current === 0) setText(inAddress);
  }, [inAddress]);
  function type(next: string) {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = undefined;
      writing.current += 1;
      void write(next).finally(() => (writing.current -= 1));
    }, TYPING_MS);
  }
  return [text, type];
}
