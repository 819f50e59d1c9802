/* Runs in every frame of the IDE's page. Calls `report` with the state of each agent whenever
 * that changes, and carries out calls through window.__outrider.
 *
 * spec:   {agents: [...]} as in the provider's file (see spec.py)
 * hooks:  what the provider's own script adds, every part of it optional:
 *         look(root, agent, tools)    more about an agent, or null where there is no such agent;
 *                                     `tools.seen` is what the selectors have found
 *         read(root, agent)           the chat: [{key, role, kind, content}]
 *         choose(root, agent, id)     click the option; true if it was there
 *         open(root, agent)           show the chat; root is null if there is none yet
 *         prepare(root, agent, ms)    what has to be done once, before the first message
 *         select(root, agent)         make this agent the one that gets messages
 *         change(root, agent, id, value)  change a control
 *         workspace()                 the directory that is open
 */
(spec, hooks, report) => {
  const GAP = 50; // milliseconds between two looks at a page that keeps changing

  window.__outrider?.stop();

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const visible = (element) =>
    element.getClientRects().length > 0 &&
    (!element.checkVisibility || element.checkVisibility({ visibilityProperty: true }));
  const every = (root, selector) => (selector ? [...root.querySelectorAll(selector)] : []);
  const text = (element) => (element ? element.innerText.replaceAll("\u00a0", " ").trim() : "");

  const rootOf = (agent) => {
    const roots = every(document, agent.panel);
    return roots.find(visible) ?? roots[0] ?? null;
  };

  /* What is there for a person: in a chat that is not shown, all that it holds. */
  const there = (root, selector) => {
    const found = every(root, selector);
    return visible(root) ? found.filter(visible) : found;
  };

  const asked = (root, agent) => {
    const question = agent.question;
    const dialog = question && there(root, question.dialog)[0];
    if (!dialog) return null;
    const offers = [];
    for (const option of question.options) {
      for (const element of there(dialog, option.selector)) {
        const id = `${option.kind}:${offers.length}`;
        offers.push({ id, label: text(element) || option.kind, kind: option.kind, element });
      }
    }
    if (!offers.length) return null;
    const parts = question.text ? every(dialog, question.text) : [dialog];
    const message = parts.map(text).filter(Boolean).join("\n");
    const key = JSON.stringify([message, offers.map((offer) => offer.label)]);
    return { key, message, offers };
  };

  const look = (agent) => {
    const root = rootOf(agent);
    if (!root) return null;
    const question = asked(root, agent);
    const error = there(root, agent.error)[0];
    const seen = {
      shown: visible(root),
      input: every(root, agent.input).length > 0,
      busy: agent.busy.some((selector) => there(root, selector).length > 0),
      question: question && {
        key: question.key,
        message: question.message,
        options: question.offers.map(({ id, label, kind }) => ({ id, label, kind })),
      },
      error: error ? text(error) || "the agent shows an error" : null,
      title: text(every(root, agent.title)[0]) || null,
    };
    if (!hooks.look) return seen;
    const more = hooks.look(root, agent, { visible, every, there, text, seen });
    return more && { ...seen, ...more };
  };

  const lookAtAll = () => {
    const seen = {};
    for (const agent of spec.agents) {
      try {
        const found = look(agent);
        if (found) seen[agent.type] = found;
      } catch (error) {
        seen[agent.type] = { shown: true, input: true, broken: String(error) };
      }
    }
    return seen;
  };

  let reported = null;
  const sendReport = () => {
    const seen = JSON.stringify(lookAtAll());
    if (seen === reported) return;
    reported = seen;
    window[report]?.(seen);
  };

  let due = null;
  let looked = -Infinity;
  const lookNow = () => {
    due = null;
    looked = performance.now();
    sendReport();
  };
  const changed = () => {
    const wait = looked + GAP - performance.now();
    if (wait <= 0) lookNow();
    else due ??= setTimeout(lookNow, wait);
  };
  const observer = new MutationObserver(changed);
  observer.observe(document, {
    childList: true, subtree: true, attributes: true, characterData: true,
  });

  const rowsOf = (root, agent, into) => {
    const { row, key, content, roles } = agent.messages;
    every(root, row).forEach((element, index) => {
      const role = roles.find(({ selector }) => element.matches(selector))?.role ?? "assistant";
      const found = (content && element.querySelector(content)) || element;
      const name = String((key && element.getAttribute(key)) ?? index);
      into.set(name, { key: name, role, kind: "text", content: found.innerText.trim() });
    });
  };

  /* What was scrolled to is drawn with a frame, and a window that is minimised has none. */
  const drawn = () => {
    const frames = new Promise((done) => {
      requestAnimationFrame(() => requestAnimationFrame(done));
    });
    return Promise.race([frames, pause(500)]);
  };

  /* The rows of a list that holds only those in sight: scrolled through, and back again. */
  const scrolled = async (root, agent, scroller, into) => {
    const before = scroller.scrollTop;
    for (scroller.scrollTop = 0; ; ) {
      await drawn();
      rowsOf(root, agent, into);
      const at = scroller.scrollTop;
      scroller.scrollTop = at + Math.max(40, scroller.clientHeight * 0.8);
      if (scroller.scrollTop <= at) break;
    }
    scroller.scrollTop = before;
  };

  const verbs = {
    look: () => lookAtAll(),
    async read(agent, root) {
      if (!root) return [];
      if (hooks.read) return hooks.read(root, agent);
      if (!agent.messages) return [];
      const rows = new Map();
      const scroller = agent.messages.scroller && root.querySelector(agent.messages.scroller);
      if (scroller) await scrolled(root, agent, scroller, rows);
      else rowsOf(root, agent, rows);
      return [...rows.values()].filter((row) => row.content);
    },
    /* Answers whether it was clicked: not if another question stands there by now. One that is
     * being drawn anew is waited for, so many milliseconds. */
    async choose(agent, _, key, id, ms) {
      const asks = () => look(agent)?.question?.key;
      for (const end = performance.now() + ms; !asks() && performance.now() < end; ) {
        await pause(GAP);
      }
      const root = rootOf(agent);
      if (!root || asks() !== key) return false;
      if (hooks.choose) return hooks.choose(root, agent, id);
      const offer = asked(root, agent).offers.find((offer) => offer.id === id);
      offer?.element.click();
      return Boolean(offer);
    },
    /* Answers whether the control was there to click; waits for it, so many milliseconds. */
    async interrupt(agent, _, ms) {
      const control = () => {
        const root = rootOf(agent);
        return root && there(root, agent.stop).find((element) => !element.disabled);
      };
      for (const end = performance.now() + ms; !control() && performance.now() < end; ) {
        await pause(GAP);
      }
      const found = control();
      found?.click();
      return Boolean(found);
    },
    open(agent, root) {
      if (hooks.open) return hooks.open(root, agent);
      every(document, agent.open)[0]?.click();
    },
    prepare: (agent, root, ms) => hooks.prepare?.(root, agent, ms),
    select: (agent, root) => hooks.select?.(root, agent),
    change: (agent, root, id, value) => hooks.change?.(root, agent, id, value) ?? false,
    /* The content of the input; null if it cannot be read. */
    typed(agent, root) {
      const input = root && root.querySelector(agent.input);
      return input ? (input.value ?? (input.isContentEditable ? input.innerText : null)) : null;
    },
    focus(agent, root) {
      const input = root.querySelector(agent.input);
      (input.querySelector("textarea, [contenteditable=true], .native-edit-context") ?? input).focus();
    },
    /* Into the focused element. If typed, a code editor would indent lines and offer completions. */
    paste(agent, root, words) {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", words);
      const pasted = { clipboardData, bubbles: true, cancelable: true };
      document.activeElement.dispatchEvent(new ClipboardEvent("paste", pasted));
    },
    submit(agent, root) {
      const button = root && there(root, agent.submit)[0];
      button?.click();
      return Boolean(button);
    },
    workspace: () => hooks.workspace?.() ?? null,
  };

  const handle = {
    do(verb, type, ...rest) {
      const agent = spec.agents.find((agent) => agent.type === type);
      return verbs[verb](agent, agent && rootOf(agent), ...rest);
    },
    /* Reports without a mutation: a change of a style sheet changes no node. */
    again() {
      sendReport();
      return true;
    },
    stop() {
      observer.disconnect();
      clearTimeout(due);
    },
  };
  Object.defineProperty(window, "__outrider", { value: handle, configurable: true });
  lookNow();
}
