/* VS Code and its relatives: what selectors inside the chat cannot tell. */
(() => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const every = (root, selector) => [...root.querySelectorAll(selector)];
  const visible = (selector) => every(document, selector).find((e) => e.getClientRects().length);
  const text = (element) => (element ? element.innerText.trim() : "");
  const fire = (element, type) =>
    element?.dispatchEvent(
      new MouseEvent(type, { bubbles: true, cancelable: true, button: 0, view: window }),
    );
  const until = async (found, ms) => {
    for (const end = performance.now() + ms; performance.now() < end; await pause(50)) {
      const it = found();
      if (it) return it;
    }
    return null;
  };

  /* What can be chosen in the chat. A menu holds its choices only while it is open, so they
   * are kept, for the page and the next one in its place. */
  const PICKERS = {
    model: { label: "Model", button: ".model-picker-name" },
    mode: { label: "Mode", button: ".chat-mode-picker-item .action-label" },
  };
  const KEPT = "outrider choices";
  const kept = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  const rows = () =>
    every(document, ".context-view .action-widget .monaco-list-row.action").filter(
      (row) => row.getClientRects().length,
    );
  const nameOf = (row) => text(row.querySelector(".title"));
  const chosen = (root, id) => text(root.querySelector(PICKERS[id].button)) || null;

  const open = async (root, id) => {
    fire(root.querySelector(PICKERS[id].button), "mousedown");
    await until(() => rows().length, 3000);
    const more = document.querySelector(".context-view .chat-model-picker-section-toggle");
    if (more?.querySelector(".codicon-chevron-right")) {
      const before = rows().length;
      fire(more, "click");
      await until(() => rows().length > before, 1000);
    }
  };
  const close = async () => {
    const list = document.querySelector(".context-view .action-widget .monaco-list");
    const escape = { key: "Escape", code: "Escape", keyCode: 27, bubbles: true, cancelable: true };
    list?.dispatchEvent(new KeyboardEvent("keydown", escape));
    if (await until(() => !rows().length, 1000)) return;
    fire(document.body, "mousedown");
    await until(() => !rows().length, 1000);
  };
  /* The rows of an open menu that are choices: the others, "Manage Models...", open something. */
  const choices = () =>
    rows().filter(
      (row) =>
        nameOf(row) &&
        !nameOf(row).endsWith("...") &&
        !row.classList.contains("chat-model-picker-section-toggle"),
    );

  /* Its modes come a while after the extension behind the chat has started. */
  const keep = async (root, id, end) => {
    if (!root.querySelector(PICKERS[id].button)) return;
    for (let names = []; names.length < 2 && performance.now() < end; await pause(500)) {
      await open(root, id);
      names = choices().map(nameOf);
      await close();
      sessionStorage.setItem(KEPT, JSON.stringify({ ...kept(), [id]: names }));
    }
  };

  /* A new profile of VS Code starts the extension behind its chat only when its models are
   * looked at: until then there is no model but "Auto", which needs an account. */
  const wake = async (root, end) => {
    const left = () => end - performance.now();
    const named = await until(() => {
      const name = chosen(root, "model");
      return name && name !== "Models" ? name : null;
    }, left());
    if (named !== "Auto") return;
    for (let manage = null; !manage; ) {
      if (left() <= 0) return;
      await open(root, "model");
      if (choices().length > 1) return close();
      manage = rows().find((row) => nameOf(row).startsWith("Manage Models"));
      if (manage) fire(manage, "click");
      else {
        await close();
        await pause(500);
      }
    }
    await until(() => chosen(root, "model") !== named, left());
    fire(visible(".modal-editor-header .codicon-close"), "click");
    await until(() => !visible(".modal-editor-header"), 2000);
  };

  /* The row's label for screen readers has the text as it was written, where the row itself
   * shows it formatted; hints stand around it. */
  const HINTS = [
    /^Chat confirmation required: .*? to cancel\./s,
    /^\s*(?:\d+ file trees? )?(?:\d+ code blocks?: )?(?:\d+ tables? )?\s*/,
    /\s*Inspect this in the accessible view (?:with|via) [^\n]*$/,
  ];
  const contentOf = (row) => {
    const label = row.getAttribute("aria-label");
    if (!label) return text(row.querySelector(".interactive-item-container .value"));
    if (row.classList.contains("request")) return label;
    return HINTS.reduce((rest, hint) => rest.replace(hint, ""), label).trim();
  };

  /* The rows that were read. Rows above, once read, need no look any more. */
  let read = new Map();
  const collect = (root, selector) => {
    for (const row of every(root, selector)) {
      const role = row.classList.contains("request") ? "user" : "assistant";
      const content = contentOf(row);
      const before = read.get(row.dataset.index);
      if (before?.role === "user" && before.content !== content) read = new Map(); // another chat
      read.set(row.dataset.index, { role, content });
    }
  };

  /* The list draws only the rows in sight, and keeps its own scroll position: it is told by the
   * wheel, 50 pixels for each 120 of wheelDeltaY, which is negative downwards. A script's event
   * has deltaY there unless told otherwise: the wrong way round. */
  const WHEEL = -120 / 50;
  const END = 1e7; // pixels, more than any chat has
  const readRows = async (root, selector) => {
    const list = root.querySelector(".interactive-list .monaco-scrollable-element");
    const topOf = (element) => element?.getBoundingClientRect().top ?? 0;
    const at = () => topOf(list?.querySelector(".monaco-list-rows"));
    const inSight = () =>
      every(root, selector).sort((one, other) => one.dataset.index - other.dataset.index);
    /* Scrolls, and tells whether that has moved anything. */
    const scroll = async (deltaY) => {
      const before = at();
      const wheel = { deltaY, wheelDeltaY: deltaY * WHEEL, bubbles: true, cancelable: true };
      list?.dispatchEvent(new WheelEvent("wheel", wheel));
      await pause(40);
      collect(root, selector);
      return at() !== before;
    };
    /* A row's height is known once it was drawn: the end may be further down then. */
    const toEnd = async () => {
      for (let tries = 5; tries && (await scroll(END)); tries--);
    };
    collect(root, selector);
    await toEnd();
    const newest = Number(inSight().at(-1)?.dataset.index ?? -1);
    if (newest < 0) read = new Map();
    for (const index of read.keys()) if (index > newest) read.delete(index);
    const complete = () => [...Array(newest + 1).keys()].every((index) => read.has(String(index)));
    if (complete()) return;
    /* Upwards, whatever the height of a row: the uppermost goes to the lower edge. */
    const page = list?.clientHeight ?? 0;
    for (const end = performance.now() + 5000; !complete() && performance.now() < end; ) {
      if (!(await scroll(topOf(inSight()[0]) - topOf(list) - 0.9 * page))) break;
    }
    await toEnd();
  };

  /* The command of a question is drawn a little later than its buttons, in an editor that may
   * show another one's for a moment: a question counts once its words have stood still. What
   * stands beside them changes later, such as "Assessing risk…". */
  const STEADY = 250;
  let drawing = { words: null, since: 0 };
  const steady = (words) => {
    if (words !== drawing.words) drawing = { words, since: performance.now() };
    const left = words ? drawing.since + STEADY - performance.now() : 0;
    if (left > 0) setTimeout(() => window.__outrider?.again(), left + 10);
    return left <= 0;
  };

  /* Rows are numbered within a chat. Another chat in the same panel begins with 0 again: it was
   * empty before, or has another beginning. A page that is being loaded is empty, too, until it
   * has shown the first rows of a chat, which are no other for that. */
  const CHAT = "outrider chat";
  const lastChat = () => JSON.parse(sessionStorage.getItem(CHAT) ?? '{"number": 0}');
  let filled = false;
  const chatOf = (found) => {
    const last = lastChat();
    const first = found.get("0")?.content ?? last.first;
    const other =
      found.size > 0 &&
      last.first !== undefined &&
      (first !== last.first || (last.emptied && found.size <= 2));
    const now = {
      number: last.number + (other ? 1 : 0),
      first: found.size ? first : last.first,
      emptied: found.size === 0 && (filled || Boolean(last.emptied)),
    };
    filled ||= found.size > 0;
    sessionStorage.setItem(CHAT, JSON.stringify(now));
    return now.number;
  };

  /* A page that is being loaded shows an empty chat, before the one that it had: a message to
   * that would be lost. */
  const LOADING = 10_000;
  let drawnAt = null;
  const comesBack = (root, agent) => {
    filled ||= root.querySelector(agent.messages.row) !== null;
    const { first, emptied } = lastChat();
    if (filled || first === undefined || emptied) return false;
    drawnAt ??= performance.now();
    const left = drawnAt + LOADING - performance.now();
    if (left > 0) setTimeout(() => window.__outrider?.again(), left + 10);
    return left > 0;
  };

  return {
    look(root, agent, { there, seen }) {
      if (comesBack(root, agent)) return null;
      const login = visible(".chat-setup-dialog .dialog-message-text");
      const failed = there(root, agent.error)[0];
      const drawn = steady(seen.question?.key ?? null);
      const options = kept();
      return {
        error: login
          ? `${text(login)}: do so in the window, or choose another model there`
          : failed
            ? text(failed.closest(".interactive-item-container") ?? failed)
            : null,
        ...(drawn ? {} : { busy: true, question: null }),
        // behind a dialog nothing goes on, whatever the chat shows
        ...(login ? { busy: false, question: null } : {}),
        model: chosen(root, "model"),
        title: text(visible(".chat-viewpane .chat-view-title-label")) || null,
        controls: Object.keys(PICKERS)
          .map((id) => ({ id, label: PICKERS[id].label, value: chosen(root, id) }))
          .filter(({ value }) => value)
          .map((control) => ({
            ...control,
            options: [...new Set([...(options[control.id] ?? []), control.value])],
          })),
      };
    },

    /* The button hides a chat that is shown; a page that is being loaded shows it by itself. */
    async open(root, agent) {
      const shown = () => visible(agent.panel);
      await until(shown, LOADING / 2 - performance.now());
      if (!shown()) document.querySelector(agent.open)?.click();
    },

    async prepare(root, agent, ms) {
      await wake(root, performance.now() + ms);
      for (const id of Object.keys(PICKERS)) await keep(root, id, performance.now() + ms / 8);
    },

    async change(root, agent, id, value) {
      await open(root, id);
      const row = choices().find((row) => nameOf(row) === value);
      if (!row) return close();
      fire(row, "click");
      await until(() => !rows().length, 500);
    },

    async read(root, agent) {
      await readRows(root, agent.messages.row);
      const chat = chatOf(read);
      return [...read]
        .filter(([, row]) => row.content)
        .sort(([one], [other]) => one - other)
        .map(([index, row]) => ({ key: `${chat}/${index}`, kind: "text", ...row }));
    },

    /* The folder of a desktop window is in its configuration, that of a web page in its address:
     * a path, or the address of a folder of the server. Anything else, such as a workspace file
     * or a folder on another host, is no directory that a launch can mean. */
    workspace() {
      const configuration = window.vscode?.context?.configuration?.();
      if (configuration) {
        const folder = configuration.workspace?.uri;
        return folder?.scheme === "file" ? folder.path : null;
      }
      const folder = new URLSearchParams(location.search).get("folder");
      if (!folder || folder.startsWith("/")) return folder;
      const { protocol, host, pathname } = new URL(folder);
      const here = protocol === "vscode-remote:" && host === location.host;
      return here ? decodeURIComponent(pathname) : null;
    },
  };
})()
