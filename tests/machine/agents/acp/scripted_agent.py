"""An agent that speaks raw JSON-RPC on its pipes and misbehaves on request.

`python scripted_agent.py [--no-load] [--mute] [--login] [--no-images] [--die] [--refuses]
[--old-models] [--in-order] [STATE]`. What it does in a turn, the words of the message say; STATE is a file that keeps the
sessions it knows.
"""

# mypy: ignore-errors
# ruff: noqa: E501, PTH110, PTH123
import itertools
import json
import os
import subprocess
import sys
import threading
import time

FLAGS = {word for word in sys.argv[1:] if word.startswith("--")}
STATE = next((word for word in sys.argv[1:] if not word.startswith("--")), None)
SESSION = "native-1"
LOCK = threading.Lock()
ANSWERS = {}
ASKED = threading.Semaphore(0)
"""The requests that were sent, of which no turn has taken note."""
NUMBERS = itertools.count()
MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "plan", "name": "Plan only"}],
}
OPTIONS = [
    {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": "small",
        "options": [{"value": "small", "name": "Small 1"}, {"value": "big", "name": "Big 2"}],
    },
    {"id": "web", "name": "Web search", "type": "boolean", "currentValue": False},
]
MODELS = {
    "currentModelId": "old-1",
    "availableModels": [{"modelId": "old-1", "name": "Old"}, {"modelId": "old-2", "name": "Older"}],
}
ALLOW = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def write(line):
    with LOCK:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}).encode())


def update(kind, /, **fields):
    send(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": kind, **fields}})  # fmt: skip


def say(text, **more):
    update("agent_message_chunk", content={"type": "text", "text": text}, **more)


def ask(method, **params):
    """Send a request to the client; return its answer."""
    number = f"q{next(NUMBERS)}"
    ready = threading.Event()
    ANSWERS[number] = [ready, None]
    send(id=number, method=method, params={"sessionId": SESSION, **params})
    ASKED.release()
    ready.wait(90)
    return ANSWERS[number][1]


def permission(name, options=ALLOW):
    answer = ask(
        "session/request_permission",
        toolCall={
            "toolCallId": name,
            "title": f"run {name}",
            "rawInput": {"command": f"do {name}"},
        },
        options=options,
    )
    outcome = answer["result"]["outcome"]
    say(f"{name}:{outcome.get('optionId', outcome['outcome'])} ")


CANCELLED = threading.Event()
METHODS = []


def turn(number, prompt):
    text = "\n".join(part.get("text", f"[{part['type']}]") for part in prompt)
    word, _, rest = text.strip().partition(" ")
    reason = "end_turn"
    match word:
        case "chunks":
            update("agent_thought_chunk", content={"type": "text", "text": "let me "})
            update("agent_thought_chunk", content={"type": "text", "text": "think"})
            update("plan", entries=[{"content": "one", "priority": "low", "status": "pending"}])
            for piece in ("a", "b", "c"):
                say(piece, messageId="first")
            say("d", messageId="second")
            update("plan", entries=[{"content": "one", "priority": "low", "status": "completed"}])
        case "tool":
            update("tool_call", toolCallId="t1", title="Read it", kind="read", status="pending", rawInput={"path": "x"})  # fmt: skip
            say("meanwhile")
            update("tool_call_update", toolCallId="t1", status="completed", content=[{"type": "content", "content": {"type": "text", "text": "contents"}}])  # fmt: skip
        case "orphan":
            update("tool_call_update", toolCallId="nobody", title="Never begun", status="completed", rawOutput={"output": "done"})  # fmt: skip
        case "unfinished":
            update("tool_call", toolCallId="t2", title="Begun", rawInput={})
        case "unfinished-sleep":
            update("tool_call", toolCallId="t2", title="Begun", rawInput={})
            CANCELLED.wait(300)  # and `end_turn`, not `cancelled`
        case "edit":
            diff = {"type": "diff", "path": "/work/x.py", "oldText": "a\nb\n", "newText": "x\nb\n"}
            call = {"toolCallId": "e1", "title": "Edit x.py", "kind": "edit", "content": [diff], "locations": [{"path": "/work/x.py", "line": 1}]}  # fmt: skip
            update("tool_call", **call)
            ask("session/request_permission", toolCall=call, options=ALLOW)
            update("tool_call_update", toolCallId="e1", status="completed", content=[{"type": "content", "content": {"type": "text", "text": "Edited"}}])  # fmt: skip
        case "permission":
            permission("one")
        case "permissions":
            for name in rest.split():
                permission(name)
        case "odd-permission":
            permission("odd", [{"optionId": "go", "name": "Go", "kind": "allow_once"}])
        case "two-permissions":
            while ASKED.acquire(blocking=False):
                pass
            threads = [threading.Thread(target=permission, args=[name]) for name in ("one", "two")]
            for thread in threads:
                thread.start()
                ASKED.acquire()
            for thread in threads:
                thread.join()
        case "rubbish":
            write(b"this is no JSON")
            write(b"\xff\xfe\x00 nor is this")
            write(b"[1, 2, 3]")
            write(b'"text"')
            write(b'{"jsonrpc": "2.0", "id": [1], "result": {}}')
            write(b'{"jsonrpc": "2.0", "id": 99999, "error": "no object"}')
            write(b'{"jsonrpc": "2.0", "method": 5}')
            write(b'{"jsonrpc": "2.0", "method": "session/update"}')
            write(b'{"jsonrpc": "2.0", "method": "unheard/of", "params": {}}')
            update("unheard_of", what="ever")
            write(b"[" * 100_000)
            write(b"{" * 70_000_000 if rest == "huge" else b"")
            say("still here")
        case "stderr":
            for _ in range(int(rest)):
                os.write(2, b"x" * 1023 + b"\n")
            os.write(2, b"the last complaint\n")
            say("flooded")
        case "crash":
            say("about to")
            os.write(2, b"boom: it all went wrong\n")
            os._exit(7)
        case "orphan-crash":
            command = [sys.executable, "-c", "import time; time.sleep(300)"]
            subprocess.Popen(command)
            subprocess.Popen(command, start_new_session=True)
            say("children")
            time.sleep(0.2)
            if rest:
                os._exit(3)
        case "big":
            say("m" * int(rest))
        case "lines":
            say("\n" * int(rest))
        case "stream":
            for index in range(int(rest)):
                say(f"{index} ")
        case "paced":
            began = time.monotonic()
            for index in range(int(rest)):
                say(f"{time.time()} ")
                time.sleep(max(0, began + (index + 1) / 1000 - time.monotonic()))
        case "clock":
            for _ in range(int(rest)):
                update("session_info_update", title=str(time.time()))
                time.sleep(0.03)
        case "late":
            update("tool_call", toolCallId="t1", title="Read it", content=[{"type": "content", "content": {"type": "text", "text": "contents"}}])  # fmt: skip
            update("tool_call_update", toolCallId="t1", status="completed")
        case "refuse-late":
            say("I begin")
            send(id=number, error={"code": -32602, "message": "Invalid params after all"})
            return
        case "refuse":
            code = {"invalid": -32602, "login": -32000, "broken": -32603}[rest]
            send(id=number, error={"code": code, "message": "Internal error", "data": {"details": f"it is {rest}"}})  # fmt: skip
            return
        case "fail":
            say("half an ans")
            send(id=number, error={"code": -32603, "message": "Internal error: the model is gone"})
            return
        case "sleep":
            say("zzz")
            CANCELLED.wait(300)
            say(" awake")  # and `end_turn`, not `cancelled`
        case "deaf":
            say("deaf")
            time.sleep(300)
        case "fs":
            verb, path = rest.split(" ", 1)
            if verb == "read":
                answer = ask("fs/read_text_file", path=path)
            elif verb == "line":
                answer = ask("fs/read_text_file", path=path, line=2, limit=1)
            else:
                answer = ask("fs/write_text_file", path=path, content="written")
            say(json.dumps(answer.get("result") or answer.get("error", {}).get("message", "")))
        case "fs-race":
            verb, most, path = rest.split(" ", 2)
            seen = {}
            for _ in range(int(most)):
                answer = ask(f"fs/{verb}_text_file", path=path, content="written")
                if "error" in answer:
                    outside = "is not inside" in answer["error"].get("message", "")
                    outcome = "refused" if outside else "failed"
                else:
                    outcome = (answer["result"] or {}).get("content", "written")
                seen[outcome] = seen.get(outcome, 0) + 1
                if (
                    seen.get("refused", 0) >= 50
                    and max(seen.get(w, 0) for w in ("inside", "written")) >= 50
                ):
                    break
            say(json.dumps(seen))
        case "terminal":
            limit = {"outputByteLimit": 10}
            created = ask("terminal/create", command=rest, **limit)
            name = created["result"]["terminalId"]
            update("tool_call", toolCallId="sh", title=rest, content=[{"type": "terminal", "terminalId": name}])  # fmt: skip
            ended = ask("terminal/wait_for_exit", terminalId=name)
            output = ask("terminal/output", terminalId=name)
            ask("terminal/release", terminalId=name)
            gone = ask("terminal/output", terminalId=name)
            update("tool_call_update", toolCallId="sh", status="completed")
            say(json.dumps([ended["result"], output["result"], "error" in gone]))
        case "terminal-kill":
            name = ask("terminal/create", command="sleep", args=["300"])["result"]["terminalId"]
            running = ask("terminal/output", terminalId=name)["result"]
            ask("terminal/kill", terminalId=name)
            ended = ask("terminal/wait_for_exit", terminalId=name)["result"]
            say(json.dumps([running.get("exitStatus"), ended]))
        case "terminal-many":
            answers = [ask("terminal/create", command="sleep 300") for _ in range(int(rest))]
            say(json.dumps([sum("error" in answer for answer in answers)]))
        case "terminal-rush":
            errors = []
            threads = [
                threading.Thread(target=lambda: errors.append("error" in ask("terminal/create", command="sleep 300")))
                for _ in range(int(rest))
            ]  # fmt: skip
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            say(json.dumps([sum(errors)]))
        case "terminal-leaves":
            name = ask("terminal/create", command="sleep 300 & echo begun")["result"]["terminalId"]
            ended = ask("terminal/wait_for_exit", terminalId=name)["result"]
            if rest == "released":
                ask("terminal/release", terminalId=name)
            say(json.dumps([ended]))
        case "requests":
            count, gate = rest.split(" ", 1)
            for index in range(int(count)):
                send(id=f"r{index}", method="session/request_permission", params={"sessionId": SESSION, "toolCall": {"toolCallId": f"r{index}"}, "options": ALLOW})  # fmt: skip
            while not os.path.exists(gate):
                time.sleep(0.02)
            say("asked")
        case "title":
            update("session_info_update", title=rest)
            update("usage_update", used=10, size=100)
        case "set":
            say(json.dumps([MODES["currentModeId"], MODELS["currentModelId"], METHODS]))
        case "mode":
            update("current_mode_update", currentModeId=rest)
        case "stop":
            reason = rest
        case "foreign":
            send(method="session/update", params={"sessionId": "another", "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "not ours"}}})  # fmt: skip
            say("ours")
        case "emoji":
            half = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": SESSION, "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "half \ud83d"}}}})  # fmt: skip
            write(half.encode())
        case _:
            say(f"You said: {text}")
    send(id=number, result={"stopReason": reason})
    if word == "late":
        update("tool_call_update", toolCallId="t1", status="completed")
        update("tool_call_update", toolCallId="t1", title="Read it, at last")
        update("session_info_update", title="late")
    if word == "late-permission":
        while not os.path.exists(rest):
            time.sleep(0.02)
        permission("late")


def session():
    if "--old-models" in FLAGS:
        return {"sessionId": SESSION, "modes": MODES, "models": MODELS}
    return {"sessionId": SESSION, "modes": MODES, "configOptions": OPTIONS}


def known():
    return STATE is not None and os.path.exists(STATE)


def handle(message):
    method, number, params = message["method"], message.get("id"), message.get("params") or {}
    match method:
        case "initialize":
            if "--mute" in FLAGS:
                return
            if "--die" in FLAGS:
                os.write(2, os.environ.get("COMPLAINT", "cannot find my configuration").encode())
                os._exit(4)
            send(
                id=number,
                result={
                    "protocolVersion": 99 if "--future" in FLAGS else 1,
                    "agentCapabilities": {
                        "loadSession": "--no-load" not in FLAGS,
                        "promptCapabilities": {"image": "--no-images" not in FLAGS},
                    },
                    "authMethods": [
                        {"id": "browser", "name": "Log in in a browser"},
                        {
                            "type": "env_var",
                            "id": "key",
                            "name": "Key",
                            "vars": [{"name": "SCRIPTED_KEY"}],
                        },
                    ],
                    "agentInfo": {"name": "scripted", "version": "1"},
                },
            )
        case "authenticate":
            METHODS.append(params["methodId"])
            FLAGS.discard("--login")
            send(id=number, result={})
        case "session/new":
            if "--refuses" in FLAGS:
                os.write(2, os.environ["COMPLAINT"].encode())
                send(id=number, error={"code": -32603, "message": "my child is gone"})
                return
            if "--login" in FLAGS:
                send(id=number, error={"code": -32000, "message": "Authentication required"})
                return
            if STATE is not None:
                with open(STATE, "w") as file:
                    file.write(params["cwd"])
            send(id=number, result=session())
        case "session/load":
            if not known():
                send(id=number, error={"code": -32002, "message": "Session not found"})
                return
            update("user_message_chunk", content={"type": "text", "text": "told anew"})
            say("told anew")
            update("tool_call", toolCallId="old", title="told anew")
            send(id=number, result={name: value for name, value in session().items() if name != "sessionId"})  # fmt: skip
            if "--in-order" not in FLAGS:
                say("told anew, late")
        case "session/set_mode":
            MODES["currentModeId"] = params["modeId"]
            send(id=number, result={})
        case "session/set_model":
            MODELS["currentModelId"] = params["modelId"]
            send(id=number, result={})
        case "session/set_config_option":
            for option in OPTIONS:
                if option["id"] == params["configId"]:
                    option["currentValue"] = params["value"]
            send(id=number, result={"configOptions": OPTIONS})
        case "session/prompt":
            CANCELLED.clear()  # here: a cancel may be read before the turn has begun
            threading.Thread(target=turn, args=[number, params["prompt"]], daemon=True).start()
        case "session/cancel":
            CANCELLED.set()


for line in sys.stdin.buffer:
    received = json.loads(line)
    if "method" in received:
        handle(received)
    elif received.get("id") in ANSWERS:
        waiting = ANSWERS[received["id"]]
        waiting[1] = received
        waiting[0].set()
if "--stays" in FLAGS:
    time.sleep(300)
