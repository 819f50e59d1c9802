import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm, type ITheme } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "react";
import { BASE } from "@/api/client";
import { pageSocket } from "@/api/page-secret";
import { t } from "@/text";
import { Button } from "@/ui/button";

const DARK: ITheme = {
  background: "#0b0c0d",
  foreground: "#ececef",
  cursor: "#ececef",
  selectionBackground: "#3a3d44",
};
const LIGHT: ITheme = {
  ...{ background: "#f7f7f8", foreground: "#17181c", cursor: "#17181c", selectionBackground: "#cfcfd6" },
  ...{ black: "#17181c", white: "#6d717c", brightWhite: "#585c66", yellow: "#8a5300", brightYellow: "#8a5300" },
  ...{ green: "#1b7a43", brightGreen: "#1b7a43", cyan: "#0b6f83", brightCyan: "#0b6f83" },
};

/** The keys that phones do not have: their labels, their names, and what they send. */
const KEYS: [string, string, string][] = [
  ["Esc", "Escape", "\x1b"],
  ["Tab", "Tab", "\t"],
  ["↑", "Up", "\x1b[A"],
  ["↓", "Down", "\x1b[B"],
  ["←", "Left", "\x1b[D"],
  ["→", "Right", "\x1b[C"],
  ["Enter", "Enter", "\r"],
];

/** Characters that are kept while the terminal connects, for when it has. */
const MAX_TYPED = 10_000;

/**
 * Sequences whose effect xterm.js repeats as often as they say: insert and delete lines (L, M),
 * scroll (S, T), repeat a character (b). Two thousand million times would stop the page.
 */
const REPEATING = ["L", "M", "S", "T", "b"];

/** Ignore sequences that repeat more often than the screen has lines or columns. */
function limitRepetition(term: Xterm): void {
  for (const final of REPEATING) {
    term.parser.registerCsiHandler(
      { final },
      ([times]) => typeof times === "number" && times > Math.max(term.cols, term.rows),
    );
  }
}

/** Close codes after which the terminal connects again without being asked to. */
const AGAIN = new Set([1001, 1006, 1012, 1013]);

/** A live terminal, by the path of its WebSocket. */
export default function Terminal({ path }: { path: string }) {
  const place = useRef<HTMLDivElement>(null);
  const input = useRef<(text: string) => void>(() => undefined);
  const ctrl = useRef(false);
  const [held, setHeld] = useState(false);
  const [closed, setClosed] = useState<string>();
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const term = new Xterm({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--font-mono") || "monospace",
      fontSize: 13,
      scrollback: 5000,
      theme: dark.matches ? DARK : LIGHT,
      screenReaderMode: true,
      minimumContrastRatio: 4.5,
    });
    limitRepetition(term);
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(element);
    fit.fit();
    const onScheme = () => (term.options.theme = dark.matches ? DARK : LIGHT);
    dark.addEventListener("change", onScheme);

    const url = new URL(BASE + path);
    url.protocol = url.protocol.replace("http", "ws");
    url.search = new URLSearchParams({ columns: String(term.cols), rows: String(term.rows) }).toString();
    const encoder = new TextEncoder();
    let socket: WebSocket;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;
    let failures = 0;
    let waiting = "";

    const connect = () => {
      socket = pageSocket(url);
      socket.binaryType = "arraybuffer";
      socket.onopen = () => {
        failures = 0;
        setClosed(undefined);
        term.reset();
        resize();
        if (waiting) socket.send(encoder.encode(waiting));
        waiting = "";
      };
      socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
        if (typeof data !== "string") term.write(new Uint8Array(data));
      };
      socket.onclose = ({ code, reason }) => {
        if (ended) return;
        setClosed(reason);
        waiting = ""; // the page says that it is closed
        if (AGAIN.has(code) && failures < 5) {
          failures += 1;
          timer = setTimeout(connect, 1000 * failures);
        }
      };
    };
    const resize = () => {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send(JSON.stringify({ type: "resize", columns: term.cols, rows: term.rows }));
    };
    const type = (text: string) => {
      let typed = text;
      if (ctrl.current && text.length === 1 && /[a-z@[\\\]^_ ]/i.test(text)) {
        typed = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 0x1f);
        ctrl.current = false;
        setHeld(false);
      }
      if (socket.readyState === WebSocket.OPEN) socket.send(encoder.encode(typed));
      else if (socket.readyState === WebSocket.CONNECTING) waiting = (waiting + typed).slice(0, MAX_TYPED);
    };
    input.current = (text) => {
      // Programs such as vim have the terminal send other sequences for the arrows.
      if (text) type(term.modes.applicationCursorKeysMode ? text.replace(/^\x1b\[/, "\x1bO") : text);
      term.focus();
    };
    // All keys belong to the terminal, also Tab: this one leaves it, as it does `outrider attach`.
    term.attachCustomKeyEventHandler((event) => {
      if (!event.ctrlKey || event.key !== "]") return true;
      const main = element.closest("main");
      (main?.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]') ?? main)?.focus();
      return false;
    });
    term.onData(type);
    term.onResize(resize);
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(element);
    connect();
    term.focus();
    return () => {
      ended = true;
      clearTimeout(timer);
      observer.disconnect();
      dark.removeEventListener("change", onScheme);
      socket.close();
      term.dispose();
    };
  }, [path, attempt]);

  return (
    <div className="flex h-full flex-col bg-sunken">
      {closed !== undefined && (
        <div
          role="alert"
          className="flex items-center justify-between gap-3 border-b border-line px-4 py-1.5 text-sm text-soft"
        >
          {t("terminal.closed", closed)}
          <Button onClick={() => setAttempt(attempt + 1)}>{t("terminal.again")}</Button>
        </div>
      )}
      <div
        ref={place}
        role="region"
        aria-label={t("terminal.region")}
        title={t("terminal.leave")}
        className="min-h-0 grow overflow-hidden p-2"
      />
      <div
        role="toolbar"
        aria-label={t("terminal.keys")}
        // The terminal keeps the focus, and a phone its keyboard.
        onPointerDown={(event) => event.preventDefault()}
        className="hidden gap-1 overflow-x-auto border-t border-line p-1.5 max-md:flex"
      >
        <Button
          look={held ? "primary" : "plain"}
          aria-pressed={held}
          className="grow"
          onClick={() => {
            ctrl.current = !held;
            setHeld(!held);
            input.current(""); // the next key is the terminal's
          }}
        >
          Ctrl
        </Button>
        {KEYS.map(([label, name, text]) => (
          <Button key={label} aria-label={name} className="grow px-2!" onClick={() => input.current(text)}>
            {label}
          </Button>
        ))}
      </div>
    </div>
  );
}
