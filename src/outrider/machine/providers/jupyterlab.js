/* JupyterLab: the chat's own store is exact where the page is only drawn. It is reached through
 * React, from any element of the chat. */
(() => {
  const above = (element, found) => {
    const name = element && Object.keys(element).find((key) => key.startsWith("__reactFiber$"));
    for (let fiber = name && element[name]; fiber; fiber = fiber.return) {
      if (fiber.memoizedProps && found(fiber.memoizedProps)) return fiber.memoizedProps;
    }
    return null;
  };
  const store = (root) =>
    above(root.querySelector("textarea"), (props) => props.model?.messages)?.model ?? null;
  const settings = (root) =>
    above(root.querySelector(".jp-jai-personaControls-controls"), (props) =>
      Array.isArray(props.controls) && props.onChange);
  /* React may keep an older state beside the newest: only what is drawn is sure to be true. */
  const valueOf = (root, control) => {
    const button = root.querySelector(
      `.jp-jai-personaControls-controls-measure [title="${CSS.escape(control.label)}"]`,
    );
    const drawn = button?.textContent.trim();
    return control.options.find((option) => option.name === drawn)?.id ?? drawn ?? null;
  };

  /* The personas that can be chosen: what the menu holds, though it is not open. */
  const personas = (root) => {
    const group = root.querySelector(".jp-jai-personaControls-group");
    const name = group && Object.keys(group).find((key) => key.startsWith("__reactFiber$"));
    const found = new Set();
    const search = (part) => {
      if (Array.isArray(part)) part.forEach(search);
      if (typeof part?.props?.primary === "string") found.add(part.props.primary);
      if (part?.props) search(part.props.children);
    };
    for (const fiber of name ? [group[name], group[name].alternate] : []) {
      search(fiber?.memoizedProps?.children);
    }
    return found;
  };
  /* Those that were there: while the page draws its menu anew, nobody seems to be. */
  const met = new Set();
  const chosen = (root) => root.querySelector(".jp-jai-personaControls-persona")?.innerText.trim();
  const idOf = (control) => control.id.replaceAll("_", "");

  const ERROR = /^An error occurred while processing your message\./;
  const errorIn = (message) => {
    if (!message?.sender?.bot || !ERROR.test(message.body)) return null;
    const summary = /<summary>(?:Error details )?\(?(.*?)\)?<\/summary>/s.exec(message.body);
    return (summary?.[1] ?? message.body).slice(0, 2000);
  };

  /* What went wrong since the newest message of a person. */
  const failure = (all) => {
    const asked = all.findLastIndex((message) => !message.sender?.bot);
    return all.slice(asked + 1).map(errorIn).find(Boolean) ?? null;
  };

  const calls = (message) => message.metadata?.tool_calls ?? [];
  const output = (call) => {
    const raw = call.raw_output ?? call.content ?? call.status;
    return typeof raw === "string" ? raw : JSON.stringify(raw);
  };
  const rows = (message) => {
    const role = message.sender?.bot ? (errorIn(message) ? "system" : "assistant") : "user";
    const found = [];
    if (message.body) {
      found.push({ key: message.id, role, kind: "text", content: message.body });
    }
    for (const call of calls(message)) {
      const command = call.raw_input?.command;
      const title = call.title ?? "tool";
      const content = command && !title.includes(command) ? `${title}\n${command}` : title;
      found.push({ key: call.tool_call_id, role: "assistant", kind: "tool_call", content });
      if (call.status === "completed" || call.status === "failed") {
        const key = `${call.tool_call_id}/result`;
        found.push({ key, role: "tool", kind: "tool_result", content: output(call) });
      }
    }
    return found;
  };

  /* All personas write into one chat: an agent's part is what it says and what is said to it.
   * A persona's id ends with its class, such as ClaudeAcpPersona. */
  const PERSONA = "jupyter-ai-personas::";
  const messages = (root, agent) => {
    let mine = true; // what nobody was named for is everybody's
    return (store(root)?.messages ?? [])
      .map((message) => message.content ?? message)
      .filter(({ sender, metadata }) => {
        if (sender?.bot) return sender.name === agent.name || !sender.username.startsWith(PERSONA);
        const to = metadata?.to_persona;
        if (to) mine = to.split("::").at(-1).toLowerCase().startsWith(agent.type);
        return mine;
      });
  };

  /* The end of a very long answer comes to the page after its persona has stopped to write. */
  const LONG = 50_000;
  const GROWS = 1000;
  const work = {};
  const stillGrows = (root, agent, busy) => {
    const last = messages(root, agent).findLast((message) => message.sender?.bot);
    const length = last?.body?.length ?? 0;
    const before = work[agent.type] ?? { length, grown: -GROWS, busy: false };
    const grown = length === before.length ? before.grown : performance.now();
    const left = before.busy && length > LONG ? grown + GROWS - performance.now() : 0;
    if (left > 0 && !busy) setTimeout(() => window.__outrider?.again(), left + 10);
    work[agent.type] = { length, grown, busy: busy || left > 0 };
    return left > 0;
  };

  const asked = (root, agent) => {
    for (const message of messages(root, agent)) {
      for (const call of calls(message)) {
        if (call.permission_status === "pending" && call.permission_options?.length) return call;
      }
    }
    return null;
  };

  return {
    look(root, agent, { there }) {
      const chat = store(root);
      if (!chat) return { input: false };
      const bots = Object.values(chat.users ?? {}).filter((user) => user.bot);
      if (bots.some((user) => user.name === agent.name)) met.add(agent.name);
      if (chosen(root) === agent.name || personas(root).has(agent.name)) met.add(agent.name);
      if (!met.has(agent.name)) return null;
      // of a long answer the page is told what is left when the stop button is off already
      const writes = (chat.writers ?? []).map((writer) => writer.user?.name);
      const stop = root.querySelector(".jp-jai-stopButton");
      const works = Boolean(stop && !stop.disabled);
      const writing = writes.length
        ? writes.includes(agent.name)
        : works && chosen(root) === agent.name;
      const busy = stillGrows(root, agent, writing) || writing;
      const call = asked(root, agent);
      const drawn = there(root, ".jp-jupyter-ai-acp-client-permission-buttons").length > 0;
      const shown = settings(root)?.controls ?? [];
      const model = shown.find((control) => control.kind === "model");
      const command = call?.raw_input?.command;
      return {
        busy,
        question: !call || !drawn ? null : {
          key: call.tool_call_id,
          message: [...new Set([call.title, command].filter(Boolean))].join("\n"),
          options: call.permission_options.map((option) => ({
            id: option.option_id, label: option.name, kind: option.kind,
          })),
        },
        error: failure(messages(root, agent)),
        title: chat.name ?? null,
        model: model && chosen(root) === agent.name ? valueOf(root, model) : null,
        controls: chosen(root) === agent.name
          ? shown.map((control) => ({
              id: idOf(control),
              label: control.label,
              options: control.options.map((option) => option.id),
              value: valueOf(root, control),
            }))
          : [],
      };
    },

    read: (root, agent) => messages(root, agent).flatMap(rows),

    choose(root, agent, id) {
      const call = asked(root, agent);
      const option = call.permission_options.find((option) => option.option_id === id);
      const buttons = [...root.querySelectorAll(".jp-jupyter-ai-acp-client-permission-btn")];
      const button = buttons.find((button) => button.innerText.trim() === option?.name.trim());
      button?.click();
      return Boolean(button);
    },

    open(root) {
      const widget = root?.closest(".jp-Document, .jp-MainAreaWidget");
      if (widget) {
        const tab = document.querySelector(`.lm-TabBar-tab[data-id="${CSS.escape(widget.id)}"]`);
        const { left, top, width, height } = tab?.getBoundingClientRect() ?? {};
        const at = { clientX: left + width / 2, clientY: top + height / 2 }; // it looks where
        for (const type of ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]) {
          tab?.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0, ...at }));
        }
        return;
      }
      document.querySelector('.jp-LauncherCard[title="Create a chat and open it"]')?.click();
    },

    async select(root, agent) {
      if (chosen(root) === agent.name) return;
      root.querySelector(".jp-jai-personaControls-persona-btn")?.click();
      for (let tries = 0; tries < 40; tries++) {
        await new Promise((done) => setTimeout(done, 50));
        const items = [...document.querySelectorAll('[role="menuitem"]')];
        const item = items.find((item) => item.innerText.trim().startsWith(agent.name));
        if (item) item.click();
        if (chosen(root) === agent.name) return;
      }
      throw new Error(`no persona ${agent.name} can be chosen`);
    },

    change(root, agent, id, value) {
      const { controls, onChange } = settings(root);
      const control = controls.find((control) => idOf(control) === id);
      onChange(control, value);
      return true;
    },

    workspace() {
      const data = document.getElementById("jupyter-config-data");
      return data ? JSON.parse(data.textContent).serverRoot ?? null : null;
    },
  };
})()
