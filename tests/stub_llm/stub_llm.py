#!/usr/bin/env python3
# A tool kept as it came: not part of the style of this repository.
# ruff: noqa
# mypy: ignore-errors
# fmt: off
"""Stub LLM server on loopback (stdlib only).

Speaks: OpenAI chat completions, OpenAI Responses, Anthropic Messages, Gemini generateContent.
Scripted by words in the last user message:
  (none)            -> "Hello from stub. You said: ..."
  SLOW | SLOW:0.5   -> ~40 tokens, 0.25 s (or given) between tokens
  LONG              -> 120 lines
  MD                -> markdown: heading, list, table, code fence
  THINK             -> reasoning/thinking before the answer
  HANG              -> headers, then silence for 120 s
  SILENT:20         -> headers, then silence for 20 s, then the answer
  LINES:10000       -> so many numbered lines, at once
  ERROR | ERROR429  -> HTTP status (default 500)
  DROP              -> stream cut off mid-answer
  TOOL | TOOL[cmd]  -> shell tool call (default: echo hi)
  FILE[path]        -> file-write tool call
  CALL[name {json}] -> call of the tool whose name ends so, such as one of an MCP server
  ASK               -> agent's own question tool, if it has one
  RECALL            -> the first NOTE-... anywhere in the conversation
"""
import argparse, hashlib, json, re, sys, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOG = None
LOCK = threading.Lock()
DUMP = None

HERE = threading.local()   # .id: the request that this thread answers


def log(**kw):
    """A line for each thing; ev: req, then first and last (byte of the answer), all with its id."""
    kw["t"] = round(time.time(), 4)
    kw["id"] = getattr(HERE, "id", None)
    with LOCK:
        LOG.write(json.dumps(kw, ensure_ascii=False) + "\n")
        LOG.flush()


def strip_reminders(t):
    m = re.search(r"<userRequest>(.*?)</userRequest>", t, flags=re.S)      # VS Code chat
    if m:
        return m.group(1).strip()
    t = re.sub(r"System note: When creating or editing Jupyter notebooks.*?corruption\.", "", t, flags=re.S)  # jupyter-ai
    t = re.sub(r"<info-msg>.*?</info-msg>", "", t, flags=re.S)               # goose
    t = re.sub(r"<system-reminder>.*?</system-reminder>", "", t, flags=re.S)
    t = re.sub(r"<(session_context|environment_context|system_reminder)>.*?</\1>", "", t, flags=re.S)
    return t.strip()


# ---------------------------------------------------------------- normalising
def last_turn(api, body):
    """-> ('user', text) | ('tool', text)"""
    if api == "chat":
        msgs = [m for m in body.get("messages", []) if m.get("role") in ("user", "tool", "assistant")]
        for m in reversed(msgs):
            c = m.get("content")
            if m["role"] == "tool":
                return "tool", c if isinstance(c, str) else json.dumps(c)
            if m["role"] == "user":
                if isinstance(c, list):
                    c = "\n".join(p.get("text", "") for p in c if p.get("type") == "text")
                return "user", strip_reminders(c or "")
    if api == "responses":
        inp = body.get("input", [])
        if isinstance(inp, str):
            return "user", inp
        for it in reversed(inp):
            ty = it.get("type", "message")
            if ty in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
                o = it.get("output")
                return "tool", o if isinstance(o, str) else json.dumps(o)
            if ty == "message" and it.get("role") == "user":
                c = it.get("content")
                if isinstance(c, list):
                    c = "\n".join(p.get("text", "") for p in c)
                c = strip_reminders(c or "")
                if c.startswith("<"):
                    continue
                return "user", c
    if api == "anthropic":
        for m in reversed(body.get("messages", [])):
            if m.get("role") != "user":
                continue
            c = m.get("content")
            if isinstance(c, str):
                return "user", strip_reminders(c)
            for p in reversed(c):
                if p.get("type") == "tool_result":
                    o = p.get("content")
                    return "tool", o if isinstance(o, str) else json.dumps(o)
                t = strip_reminders(p.get("text", "")) if p.get("type") == "text" else ""
                if t and not t.startswith("[Request interrupted"):
                    return "user", t
    if api == "gemini":
        for m in reversed(body.get("contents", [])):
            if m.get("role") == "model":
                continue
            for p in m.get("parts", []):
                if "functionResponse" in p:
                    return "tool", json.dumps(p["functionResponse"].get("response"))
            return "user", strip_reminders("\n".join(p.get("text", "") for p in m.get("parts", [])))
    return "user", ""


def tools_of(api, body):
    """-> {name: (schema, kind)}"""
    out = {}
    if api == "chat":
        for t in body.get("tools") or []:
            f = t.get("function") or {}
            if f.get("name"):
                out[f["name"]] = (f.get("parameters") or {}, "function")
    elif api == "responses":
        for t in body.get("tools") or []:
            ty = t.get("type")
            if ty == "namespace":
                continue
            out[t.get("name") or ty] = (t.get("parameters") or {}, ty)
    elif api == "anthropic":
        for t in body.get("tools") or []:
            if t.get("name"):
                out[t["name"]] = (t.get("input_schema") or {}, "function")
    elif api == "gemini":
        for t in body.get("tools") or []:
            for f in t.get("functionDeclarations") or t.get("function_declarations") or []:
                out[f["name"]] = (f.get("parameters") or f.get("parametersJsonSchema") or {}, "function")
    return out


SHELL = ["Bash", "bash", "shell_command", "exec_command", "shell", "local_shell", "run_shell_command", "run_in_terminal", "llm_version",
         "developer__shell", "execute_command", "run_command", "terminal", "execute_bash"]
WRITE = ["Write", "write", "write_file", "apply_patch", "edit_file", "create_file", "developer__text_editor",
         "str_replace_based_edit_tool"]


def fill(schema, given):
    props = (schema or {}).get("properties") or {}
    args = {}
    req = (schema or {}).get("required") or []
    for k, v in props.items():
        if k in given:
            args[k] = given[k]
        elif k in req:
            args[k] = sample(v, k)
    if not props:
        args = dict(given)
    return args


def sample(s, name="x"):
    if not isinstance(s, dict):
        return "stub"
    if "enum" in s:
        return s["enum"][0]
    if "const" in s:
        return s["const"]
    for k in ("anyOf", "oneOf"):
        if k in s:
            return sample(s[k][0], name)
    t = s.get("type", "string")
    if isinstance(t, list):
        t = t[0]
    t = str(t).lower()
    if t == "object":
        return {k: sample(v, k) for k, v in (s.get("properties") or {}).items()}
    if t == "array":
        return [sample(s.get("items") or {}, name)]
    if t in ("number", "integer"):
        return s.get("minimum", 1)
    if t == "boolean":
        return False
    return "stub " + name


def choose_tool(text, tools):
    m = re.search(r"CALL\[(\w+)\s*(\{.*?\})?\]", text)
    if m:
        for n in tools:
            if n.endswith(m.group(1)):
                return n, json.loads(m.group(2) or "{}"), "function"
        return None
    m = re.search(r"FILE\[(.*?)\]", text)
    if m:
        path = m.group(1)
        for n in WRITE:
            if n in tools:
                schema, kind = tools[n]
                if n == "apply_patch":
                    patch = "*** Begin Patch\n*** Add File: %s\n+written by stub\n*** End Patch\n" % path
                    if kind == "custom":
                        return n, patch, "custom"
                    return n, fill(schema, {"input": patch, "patch": patch, "patchText": patch}), "function"
                return n, fill(schema, {"file_path": path, "filePath": path, "path": path, "content": "written by stub\n",
                                        "file_text": "written by stub\n", "command": "write"}), "function"
        return None
    if "ASK" in text:
        for n in ("AskUserQuestion", "question", "ask_user", "request_user_input"):
            if n in tools:
                return n, fill(tools[n][0], {}), "function"
    m = re.search(r"\bTOOL(?:\[(.*?)\])?", text)
    if m:
        cmd = m.group(1) or "echo hi"
        for n in SHELL:
            if n in tools:
                schema, kind = tools[n]
                ct = ((schema.get("properties") or {}).get("command") or {}).get("type", "string")
                cv = ["bash", "-lc", cmd] if str(ct).lower() == "array" else cmd
                return n, fill(schema, {"command": cv, "cmd": cmd, "description": "Run: " + cmd,
                                        **({} if "PLAIN" in text else {"sandbox_permissions": "require_escalated",
                                            "justification": "The stub wants to run " + cmd})}), "function"
    return None


def plan(api, body):
    """-> dict(kind=..., ...)"""
    role, text = last_turn(api, body)
    tools = tools_of(api, body)
    log(ev="req", api=api, model=body.get("model"), stream=body.get("stream"), role=role, text=text[-300:],
        tools=sorted(tools)[:60], max_tokens=body.get("max_tokens"))
    schema = None
    if api == "gemini":
        g = body.get("generationConfig") or {}
        if g.get("responseMimeType") == "application/json":
            schema = g.get("responseJsonSchema") or g.get("responseSchema") or {"type": "object"}
    if api == "chat":
        rf = body.get("response_format") or {}
        if rf.get("type") == "json_schema":
            schema = rf["json_schema"].get("schema")
    if api == "responses":
        f = (body.get("text") or {}).get("format") or {}
        if f.get("type") == "json_schema":
            schema = f.get("schema")
    if api == "anthropic":
        f = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        if f.get("type") == "json_schema":
            schema = f.get("schema")
    if schema is not None:
        return dict(kind="text", tokens=[json.dumps(sample(schema))], delay=0, think=None)
    if role == "tool":
        one = " ".join(text.split())[:160]
        return dict(kind="text", tokens=tok("Tool finished. Result was: " + one), delay=0.02, think=None)
    m = re.search(r"\bERROR(\d{3})?", text)
    if m:
        return dict(kind="error", status=int(m.group(1) or 500))
    if re.search(r"\bHANG\b", text):
        return dict(kind="hang")
    delay = 0.02
    m = re.search(r"\bSLOW(?::([0-9.]+))?", text)
    if m:
        delay = float(m.group(1) or 0.25)
    c = choose_tool(text, tools)
    if c:
        return dict(kind="tool", name=c[0], args=c[1], tkind=c[2], delay=delay)
    m2 = re.search(r"\bSILENT:(\d+)", text)
    pause = int(m2.group(1)) if m2 else 0
    think = "The stub is thinking about it. Step one. Step two." if "THINK" in text else None
    if re.search(r"\bMD\b", text):
        a = ("# Heading\n\nSome **bold** and `code`.\n\n- item one\n- item two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
             "```python\nprint('hi')\n```\n\nEnd of markdown.")
    elif not tools and re.search(r"\bTOOL\b", text):   # agents that parse commands out of the text (aider)
        mm = re.search(r"\bTOOL\[(.*?)\]", text)
        a = "Run this command:\n\n```bash\n%s\n```\n" % (mm.group(1) if mm else "echo hi")
    elif not tools and re.search(r"\bFILE\[(.*?)\]", text):
        a = "%s\n```\n<<<<<<< SEARCH\n=======\nwritten by stub\n>>>>>>> REPLACE\n```\n" % re.search(r"FILE\[(.*?)\]", text).group(1)
    elif re.search(r"\bLINES:(\d+)", text):
        count = int(re.search(r"\bLINES:(\d+)", text).group(1))
        # no two alike: Gemini stops a model that says the same again and again
        lines = ["%d %s" % (i, hashlib.sha256(b"%d" % i).hexdigest()[i % 60:]) for i in range(1, count + 1)]
        pieces = ["\n".join(lines[i:i + 200]) + "\n" for i in range(0, count, 200)]
        return dict(kind="text", tokens=[*pieces[:-1], pieces[-1][:-1]], delay=0, think=None)
    elif re.search(r"\bRECALL\b", text):
        note = re.search(r"\bNOTE-\w+", json.dumps(body))
        a = "You told me: " + note.group(0) if note else "You told me nothing."
    elif re.search(r"\bLONG\b", text):
        a = "\n".join("line %d of a long answer from the stub" % i for i in range(1, 121))
    elif m:
        a = "Hello from stub, slowly. " + " ".join("word%d" % i for i in range(1, 41)) + " END-OF-SLOW."
    else:
        a = "Hello from stub. You said: " + " ".join(text.split())[-80:]
    return dict(kind="text", tokens=tok(a), delay=delay, think=think, pause=pause, drop=bool(re.search(r"\bDROP\b", text)))


def tok(s):
    return re.findall(r"\s*\S+\n*|\s+$", s) or [s]


# ---------------------------------------------------------------- server
class H(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def js(self, obj, status=200, headers=()):
        b = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(b)))
        for k, v in headers:
            self.send_header(k, v)
        self.end_headers()
        if self.command == "POST":
            log(ev="first")
        if self.command != "HEAD":
            self.wfile.write(b)
        if self.command == "POST":
            log(ev="last")

    def sse_start(self, pl):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        time.sleep(pl.get("pause", 0))
        log(ev="first")

    def raw(self, s):
        b = s.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(b), b))
        self.wfile.flush()

    def ev(self, obj, name=None):
        self.raw(("event: %s\n" % name if name else "") + "data: " + (obj if isinstance(obj, str) else json.dumps(obj)) + "\n\n")

    def sse_end(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        log(ev="last")

    def do_HEAD(self):
        self.js({})

    def do_GET(self):
        log(ev="get", path=self.path)
        p = self.path.split("?")[0]
        if p.endswith("/models"):
            ids = ["stub-model", "gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro"]
            self.js({"object": "list", "data": [{"id": i, "object": "model", "created": 1, "owned_by": "stub", "type": "model",
                                                "display_name": i, "created_at": "2025-01-01T00:00:00Z"} for i in ids],
                     "models": [{"name": "models/" + i, "displayName": i} for i in ids], "has_more": False})
        elif p == "/":
            self.js({"ok": True})
        else:
            self.js({"error": {"type": "not_found", "message": "stub: no " + p}}, 404)

    def do_POST(self):
        HERE.id = uuid.uuid4().hex
        n = int(self.headers.get("content-length") or 0)
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = b""
            while True:
                sz = int(self.rfile.readline().strip() or b"0", 16)
                if not sz:
                    self.rfile.readline()
                    break
                data += self.rfile.read(sz)
                self.rfile.readline()
        else:
            data = self.rfile.read(n)
        enc = self.headers.get("content-encoding", "")
        if enc == "gzip":
            import gzip
            data = gzip.decompress(data)
        try:
            body = json.loads(data or b"{}")
        except Exception:
            log(ev="badjson", path=self.path, enc=enc, data=data[:200].decode("latin1"))
            body = {}
        if DUMP:
            with LOCK:
                open(DUMP, "a").write(json.dumps({"path": self.path, "headers": {k: v for k, v in self.headers.items() if "key" not in k.lower() and "auth" not in k.lower()}, "body": body}) + "\n")
        p = self.path.split("?")[0]
        try:
            if p.endswith("/chat/completions"):
                self.chat(body)
            elif p.endswith("/responses"):
                self.openai_responses(body)
            elif p.endswith("/messages"):
                self.anthropic(body)
            elif p.endswith("/messages/count_tokens"):
                self.js({"input_tokens": 100})
            elif ":streamGenerateContent" in p or ":generateContent" in p:
                body.setdefault("model", p.rsplit("/", 1)[1].split(":")[0])
                self.gemini(body, ":streamGenerateContent" in p)
            elif ":countTokens" in p:
                self.js({"totalTokens": 100})
            elif p.endswith("/embeddings"):
                self.js({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.0] * 8}], "model": "stub", "usage": {"prompt_tokens": 1, "total_tokens": 1}})
            else:
                log(ev="post-unknown", path=self.path, body=str(body)[:300])
                self.js({"error": {"type": "not_found", "message": "stub: no " + p}}, 404)
        except (BrokenPipeError, ConnectionResetError):
            log(ev="client-gone", path=p)
            self.close_connection = True

    def err(self, st):
        log(ev="error-sent", status=st)
        self.js({"type": "error", "error": {"type": "stub_error", "code": st, "status": "STUB_ERROR", "message": "stub error %d as asked" % st}}, st)

    def hang(self):
        for _ in range(1200):
            time.sleep(0.1)
        self.close_connection = True

    def cut(self):
        self.close_connection = True
        try:
            self.connection.shutdown(2)
        except OSError:
            pass

    # ---- OpenAI chat
    def chat(self, body):
        pl = plan("chat", body)
        if pl["kind"] == "error":
            return self.err(pl["status"])
        if pl["kind"] == "hang":
            return self.hang()
        cid, model = "chatcmpl-" + uuid.uuid4().hex[:12], body.get("model", "stub-model")
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        if pl["kind"] == "tool":
            call = {"id": "call_" + uuid.uuid4().hex[:10], "type": "function",
                    "function": {"name": pl["name"], "arguments": json.dumps(pl["args"])}}
        if not body.get("stream"):
            time.sleep(pl.get("pause", 0) + pl["delay"] * (len(pl["tokens"]) if pl["kind"] == "text" else 1))
            if pl["kind"] == "tool":
                msg, fr = {"role": "assistant", "content": "I will use a tool.", "tool_calls": [call]}, "tool_calls"
            else:
                msg, fr = {"role": "assistant", "content": "".join(pl["tokens"])}, "stop"
            return self.js({"id": cid, "object": "chat.completion", "created": int(time.time()), "model": model,
                            "choices": [{"index": 0, "message": msg, "finish_reason": fr}], "usage": usage})
        self.sse_start(pl)

        def ch(delta, fr=None):
            self.ev({"id": cid, "object": "chat.completion.chunk", "created": int(time.time()), "model": model,
                     "choices": [{"index": 0, "delta": delta, "finish_reason": fr}]})
        ch({"role": "assistant", "content": ""})
        if pl["kind"] == "tool":
            for t in tok("I will use a tool."):
                ch({"content": t}); time.sleep(pl["delay"])
            ch({"tool_calls": [dict(call, index=0)]})
            ch({}, "tool_calls")
        else:
            if pl.get("think"):
                for t in tok(pl["think"]):
                    ch({"reasoning_content": t}); time.sleep(0.1)
            for i, t in enumerate(pl["tokens"]):
                ch({"content": t}); time.sleep(pl["delay"])
                if pl.get("drop") and i > 4:
                    return self.cut()
            ch({}, "stop")
        self.ev({"id": cid, "object": "chat.completion.chunk", "created": int(time.time()), "model": model, "choices": [], "usage": usage})
        self.ev("[DONE]")
        self.sse_end()

    # ---- OpenAI responses
    def openai_responses(self, body):
        pl = plan("responses", body)
        if pl["kind"] == "error":
            return self.err(pl["status"])
        if pl["kind"] == "hang":
            return self.hang()
        rid = "resp_" + uuid.uuid4().hex[:12]
        usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120}
        base = {"id": rid, "object": "response", "created_at": int(time.time()), "status": "in_progress", "model": body.get("model"),
                "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        seq = [0]
        if pl["kind"] == "tool":
            pre = "I will use a tool."
        else:
            pre = None
        text = pre if pre else "".join(pl["tokens"])
        mid = "msg_" + uuid.uuid4().hex[:10]
        msg = {"type": "message", "id": mid, "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": text, "annotations": []}]}
        out = [msg]
        if pl["kind"] == "tool":
            if pl["tkind"] == "custom":
                out.append({"type": "custom_tool_call", "id": "ctc_" + uuid.uuid4().hex[:8], "call_id": "call_" + uuid.uuid4().hex[:10],
                            "name": pl["name"], "input": pl["args"], "status": "completed"})
            elif pl["name"] == "local_shell":
                out.append({"type": "local_shell_call", "id": "lsc_1", "call_id": "call_" + uuid.uuid4().hex[:10], "status": "completed",
                            "action": {"type": "exec", "command": ["bash", "-lc", "echo hi"], "env": {}}})
            else:
                out.append({"type": "function_call", "id": "fc_" + uuid.uuid4().hex[:8], "call_id": "call_" + uuid.uuid4().hex[:10],
                            "name": pl["name"], "arguments": json.dumps(pl["args"]), "status": "completed"})
        if not body.get("stream"):
            return self.js(dict(base, status="completed", output=out, usage=usage))
        self.sse_start(pl)

        def e(name, **kw):
            kw["type"] = name
            kw["sequence_number"] = seq[0]
            seq[0] += 1
            self.ev(kw, name)
        e("response.created", response=base)
        e("response.in_progress", response=base)
        e("response.output_item.added", output_index=0, item=dict(msg, status="in_progress", content=[]))
        e("response.content_part.added", item_id=mid, output_index=0, content_index=0, part={"type": "output_text", "text": "", "annotations": []})
        for i, t in enumerate(tok(text) if pre else pl["tokens"]):
            e("response.output_text.delta", item_id=mid, output_index=0, content_index=0, delta=t)
            time.sleep(pl["delay"])
            if pl.get("drop") and i > 4:
                return self.cut()
        e("response.output_text.done", item_id=mid, output_index=0, content_index=0, text=text)
        e("response.content_part.done", item_id=mid, output_index=0, content_index=0, part=msg["content"][0])
        e("response.output_item.done", output_index=0, item=msg)
        for i, it in enumerate(out[1:], 1):
            e("response.output_item.added", output_index=i, item=dict(it, status="in_progress"))
            if it["type"] == "function_call":
                e("response.function_call_arguments.delta", item_id=it["id"], output_index=i, delta=it["arguments"])
                e("response.function_call_arguments.done", item_id=it["id"], output_index=i, arguments=it["arguments"])
            e("response.output_item.done", output_index=i, item=it)
        e("response.completed", response=dict(base, status="completed", output=out, usage=usage))
        self.sse_end()

    # ---- Anthropic
    def anthropic(self, body):
        pl = plan("anthropic", body)
        if pl["kind"] == "error":
            return self.err(pl["status"])
        if pl["kind"] == "hang":
            return self.hang()
        mid = "msg_" + uuid.uuid4().hex[:12]
        usage = {"input_tokens": 100, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        blocks = []
        if pl["kind"] == "tool":
            blocks = [("text", tok("I will use a tool.")), ("tool_use", pl)]
            stop = "tool_use"
        else:
            if pl.get("think"):
                blocks.append(("thinking", tok(pl["think"])))
            blocks.append(("text", pl["tokens"]))
            stop = "end_turn"
        if not body.get("stream"):
            content = []
            for k, v in blocks:
                if k == "tool_use":
                    content.append({"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:12], "name": v["name"], "input": v["args"]})
                elif k == "thinking":
                    content.append({"type": "thinking", "thinking": "".join(v), "signature": "c3R1Yg=="})
                else:
                    content.append({"type": "text", "text": "".join(v)})
            return self.js({"id": mid, "type": "message", "role": "assistant", "model": body.get("model"), "content": content,
                            "stop_reason": stop, "stop_sequence": None, "usage": usage})
        self.sse_start(pl)
        self.ev({"type": "message_start", "message": {"id": mid, "type": "message", "role": "assistant", "model": body.get("model"),
                 "content": [], "stop_reason": None, "stop_sequence": None, "usage": dict(usage, output_tokens=1)}}, "message_start")
        for i, (k, v) in enumerate(blocks):
            if k == "tool_use":
                cb = {"type": "tool_use", "id": "toolu_" + uuid.uuid4().hex[:12], "name": v["name"], "input": {}}
                self.ev({"type": "content_block_start", "index": i, "content_block": cb}, "content_block_start")
                self.ev({"type": "content_block_delta", "index": i, "delta": {"type": "input_json_delta", "partial_json": json.dumps(v["args"])}}, "content_block_delta")
            elif k == "thinking":
                self.ev({"type": "content_block_start", "index": i, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}, "content_block_start")
                for t in v:
                    self.ev({"type": "content_block_delta", "index": i, "delta": {"type": "thinking_delta", "thinking": t}}, "content_block_delta")
                    time.sleep(0.1)
                self.ev({"type": "content_block_delta", "index": i, "delta": {"type": "signature_delta", "signature": "c3R1Yg=="}}, "content_block_delta")
            else:
                self.ev({"type": "content_block_start", "index": i, "content_block": {"type": "text", "text": ""}}, "content_block_start")
                for j, t in enumerate(v):
                    self.ev({"type": "content_block_delta", "index": i, "delta": {"type": "text_delta", "text": t}}, "content_block_delta")
                    time.sleep(pl["delay"])
                    if pl.get("drop") and j > 4:
                        return self.cut()
            self.ev({"type": "content_block_stop", "index": i}, "content_block_stop")
        self.ev({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 20}}, "message_delta")
        self.ev({"type": "message_stop"}, "message_stop")
        self.sse_end()

    # ---- Gemini
    def gemini(self, body, stream):
        pl = plan("gemini", body)
        if pl["kind"] == "error":
            return self.err(pl["status"])
        if pl["kind"] == "hang":
            return self.hang()
        um = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}

        def chunk(parts, fin=None):
            c = {"content": {"role": "model", "parts": parts}, "index": 0}
            if fin:
                c["finishReason"] = fin
            return {"candidates": [c], "usageMetadata": um, "modelVersion": body.get("model"), "responseId": "r1"}
        if pl["kind"] == "tool":
            fc = {"functionCall": {"name": pl["name"], "args": pl["args"], "id": uuid.uuid4().hex[:8]}}
            seqs = [chunk([{"text": "I will use a tool."}]), chunk([fc], "STOP")]
        else:
            seqs = []
            if pl.get("think"):
                seqs.append(chunk([{"text": "**Thinking**\n" + pl["think"], "thought": True}]))
            seqs += [chunk([{"text": t}]) for t in pl["tokens"][:-1]] + [chunk([{"text": pl["tokens"][-1]}], "STOP")]
        if not stream:
            parts = [p for s in seqs for p in s["candidates"][0]["content"]["parts"]]
            if pl["kind"] == "text":
                parts = [{"text": "".join(p.get("text", "") for p in parts if not p.get("thought"))}]
            time.sleep(pl["delay"] * len(seqs))
            return self.js(chunk(parts, "STOP"))
        self.sse_start(pl)
        for i, s in enumerate(seqs):
            self.ev(s)
            time.sleep(pl["delay"])
            if pl.get("drop") and i > 4:
                return self.cut()
        self.sse_end()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, default=18080)
    ap.add_argument("--log", default="stub.log")
    ap.add_argument("--dump", default=None)
    a = ap.parse_args()
    LOG = open(a.log, "a")
    DUMP = a.dump
    s = ThreadingHTTPServer(("127.0.0.1", a.port), H)
    s.daemon_threads = True
    print("stub on", s.server_address[1], flush=True)  # --port 0: any free one
    s.serve_forever()
