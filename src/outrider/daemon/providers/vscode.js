/* VS Code and its relatives: what selectors inside the chat cannot tell. */
({
  look(root, agent, { every, there, text }) {
    const visible = (selector) => every(document, selector).find((e) => e.getClientRects().length);
    const login = visible(".chat-setup-dialog .dialog-message-text");
    const failed = there(root, agent.error)[0];
    const model = every(root, ".model-picker-name")[0];
    const title = visible(".chat-viewpane .chat-view-title-label, .chat-view-title-container h2");
    return {
      error: login
        ? `${text(login)}: do so in the window, or choose another model there`
        : failed
          ? text(failed.closest(".interactive-item-container") ?? failed)
          : null,
      // behind a dialog nothing goes on, whatever the chat shows
      ...(login ? { busy: false, question: null } : {}),
      model: text(model) || null,
      title: text(title) || null,
    };
  },

  /* The list draws the rows in sight, and keeps its own scroll position: it is told by the wheel. */
  async read(root, agent) {
    const rows = new Map();
    const list = root.querySelector(".interactive-list");
    const collect = () => {
      for (const row of root.querySelectorAll(agent.messages.row)) {
        const part = row.querySelector(agent.messages.content);
        const content = part ? part.innerText.replaceAll("\u00a0", " ").trim() : "";
        const role = row.classList.contains("request") ? "user" : "assistant";
        const key = row.getAttribute("data-index");
        if (content) rows.set(key, { key, role, kind: "text", content });
      }
    };
    const drawn = () => new Promise((done) => setTimeout(done, 40));
    const turn = async (deltaY) => {
      const target = list?.querySelector(".monaco-scrollable-element") ?? list;
      target?.dispatchEvent(new WheelEvent("wheel", { deltaY, bubbles: true, cancelable: true }));
      await drawn();
    };
    const inSight = () =>
      [...root.querySelectorAll(agent.messages.row)].map((row) => row.dataset.index).join();
    /* Turns the wheel until that moves nothing any more. */
    const through = async (deltaY) => {
      for (let before = null; before !== inSight(); ) {
        before = inSight();
        await turn(deltaY);
        collect();
      }
    };
    collect();
    if (!rows.has("0") && rows.size) await through(-250);
    if (!root.querySelector(`${agent.messages.row}[data-last-element="true"]`)) await through(250);
    return [...rows.values()].sort((one, other) => one.key - other.key);
  },
})
