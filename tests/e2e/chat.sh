#!/usr/bin/env bash
# skua run as a chat on a terminal (a pseudo terminal of Python's): history, the commands, Ctrl-C and Ctrl-D, dimmed thinking. See lib.bash.
. tests/e2e/lib.bash

cat >"$WORK/chat.py" <<'PY'
import json, os, pty, re, select, signal, struct, subprocess, sys, termios, fcntl, time

skua, work = sys.argv[1:]
good = bad = 0
TIMEOUT = 60 # seconds; an upper bound for a slow machine, not a measure

def check(name, condition, seen=b""):
    global good, bad
    if condition:
        good += 1
    else:
        bad += 1
        print(f"FAIL: {name}: {seen[-700:]!r}", file=sys.stderr)

class Chat:
    """A chat on a terminal; standard error goes there too unless a file is given."""
    def __init__(self, *args, term="xterm", err=None, env=None):
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        e = dict(os.environ, TERM=term, XDG_STATE_HOME=work + "/state", HOME=work, LC_ALL="C.UTF-8")
        e.pop("NO_COLOR", None)
        e.update(env or {})
        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.p = subprocess.Popen([skua, "run", *args], stdin=side, stdout=side, stderr=err or side, preexec_fn=own_terminal, env=e)
        os.close(side)
        self.fd, self.seen = main, b""
    def read(self, timeout):
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError: # the other side is closed
            data = b""
        self.seen += data
        return bool(data)
    def until(self, pattern, name):
        """What is seen up to and with the pattern; it is taken off."""
        end = time.monotonic() + TIMEOUT
        while True:
            m = re.search(pattern, self.seen, re.S)
            if m:
                got, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return got
            if time.monotonic() > end or (not self.read(1) and self.p.poll() is not None and not self.read(0)):
                check(f"{name}: no {pattern!r}", False, self.seen)
                return b""
    def send(self, text):
        os.write(self.fd, text)
    def ask(self, text, pattern, name):
        """A line when the prompt is there, then everything up to the pattern."""
        self.until(rb"> ", name + ", prompt")
        self.send(text + b"\r")
        return self.until(pattern, name)
    def leave(self, name, how=b"\x04"):
        self.until(rb"> ", name + ", prompt")
        end = time.monotonic() + TIMEOUT
        while self.p.poll() is None and time.monotonic() < end:
            try:
                self.send(how) # again and again: what is typed while the line editor prepares the terminal is lost
            except OSError: # it has just left
                pass
            for _ in range(20):
                if self.p.poll() is None:
                    self.read(0.1)
        status = self.p.poll()
        if status is None:
            self.p.kill()
        while self.read(0.2):
            pass
        os.close(self.fd)
        check(f"{name}: leaves with {status}", status == 0, self.seen)

figures = rb"prompt \d+ tokens, [\d.]+ t/s(?: \(\d+ reused\))?; generated \d+ tokens, [\d.]+ t/s; end: [a-z ]+\r\n"
question = b"What is the capital of France?"

# ---- a conversation with all the commands ----

c = Chat("--temp", "0", "--no-think")
hello = c.until(rb"/help tells the commands\.\r\n", "hello")
check("hello names the model", b"Tiny-dense (qwen35), " in hello, hello)
seen = c.ask(question, figures, "first answer")
check("first answer", b"The capital of France is Paris.\r\n" in seen, seen)
check("end", b"end: end token" in seen, seen)
seen = c.ask(b"/help", rb"Ctrl-C stops an answer\.", "/help")
check("/help", all(w in seen for w in (b"/reset", b"/system TEXT", b"/save FILE", b"/load FILE", b"/stats", b"/exit")), seen)
seen = c.ask(b"/stats", rb"KV cache F16\r\n", "/stats")
check("/stats", re.search(rb"context \d+ of 4096 tokens; session [\d.]+ MB, workspace [\d.]+ MB, file 17\.0 MB; \w+ kernels, \d+ threads", seen), seen)
c.ask(b"/save " + work.encode() + b"/one.json", rb"2 messages written to [^\r]*one\.json\r\n", "/save")
one = json.load(open(work + "/one.json"))
check("/save", one == [{"role": "user", "content": question.decode()}, {"role": "assistant", "content": "The capital of France is Paris."}], repr(one).encode())
seen = c.ask(b"And of Italy?", figures, "second answer")
check("history: the second prompt is longer", int(re.search(rb"prompt (\d+) tokens", seen)[1]) > 35, seen)
c.ask(b"/save " + work.encode() + b"/two.json", rb"4 messages written", "/save again")
two = json.load(open(work + "/two.json"))
check("history is kept", two[:2] == one and [m["role"] for m in two] == ["user", "assistant", "user", "assistant"], repr(two).encode())
c.ask(b"/system Be brief.", rb"\r\n", "/system")
c.ask(b"/reset", rb"\r\n", "/reset")
c.ask(b"/save " + work.encode() + b"/three.json", rb"1 messages written", "/save after /reset")
check("/reset keeps the system message", json.load(open(work + "/three.json")) == [{"role": "system", "content": "Be brief."}])
c.ask(b"/system", rb"\r\n", "/system without text")
c.ask(b"/load " + work.encode() + b"/one.json", rb"2 messages read from", "/load")
seen = c.ask(b"And of Italy?", figures, "the second answer after /load")
c.ask(b"/save " + work.encode() + b"/four.json", rb"4 messages written", "/save")
check("the same conversation, the same answer", json.load(open(work + "/four.json")) == two)
for line, pattern in ((b"/nonsense", rb"unknown command /nonsense \(see /help\)"), (b"/save", rb"/save needs a file name"), (b"/load", rb"/load needs a file name"),
                      (b"/load " + work.encode() + b"/none.json", rb"none\.json: cannot open: No such file"),
                      (b"/save " + work.encode() + b"/none/x.json", rb"cannot create: No such file"),
                      (b"/load " + work.encode() + b"/chat.py", rb"chat\.py: line 1, column \d+:"), (b"/resetx", rb"unknown command /resetx")):
    c.ask(line, rb"skua run: [^\r]*" + pattern, line.decode())
c.ask(b"/save " + work.encode() + b"/five.json", rb"4 messages written", "trouble changes nothing")
c.until(rb"> ", "prompt")
c.send(b"half a li\x03") # Ctrl-C drops the line
c.until(rb"\^C", "Ctrl-C at the prompt")
for _ in range(5): # the signal itself, at any moment: it ends nothing
    c.p.send_signal(signal.SIGINT)
    time.sleep(0.02)
check("SIGINT at the prompt", c.p.poll() is None, c.seen)
seen = c.ask(b"one \\", rb"\.\.\. ", "a line that goes on")
c.send(b"two\r")
c.until(figures, "its answer")
c.ask(b"/save " + work.encode() + b"/six.json", rb"6 messages written", "/save")
check("two lines, and nothing of the dropped one", json.load(open(work + "/six.json"))[4]["content"] == "one \ntwo")
c.leave("Ctrl-D")
check("the history file is there", os.path.exists(work + "/state/skua/history"))

c = Chat("--temp", "0", "--no-think", "-q")
c.until(rb"> ", "prompt")
c.send(b"\x1b[A\x1b[A") # arrow up: the line before /save of the last chat
c.send(b"\r")
c.until(rb"\r\n", "a line of the last chat")
c.leave("/exit", b"/exit\r")

# ---- Ctrl-C stops an answer, not the program; what was said is kept ----

endless = ("--temp", "2", "--top-k", "0", "--top-p", "1", "--logit-bias", "8175=-100", "--logit-bias", "8177=-100", "--no-think")
c = Chat(*endless, "--ctx", "100000")
for turn in (1, 2):
    c.until(rb"> ", "prompt")
    c.send(b"Tell me a story\r")
    c.until(rb"Tell me a story.*?\r\n.{300}", "the answer begins") # no longer the line editor's
    c.send(b"\x03")
    seen = c.until(rb"\(stopped\)\r\n.*?end: canceled\r\n", "Ctrl-C in an answer")
c.ask(b"/save " + work.encode() + b"/stopped.json", rb"4 messages written", "/save")
stopped = json.load(open(work + "/stopped.json"))
check("what was said is kept", all(len(stopped[i]["content"]) > 0 for i in (1, 3)))
c.leave("Ctrl-D after Ctrl-C")

# ---- a full context ends the answer, not the chat ----

c = Chat("--temp", "0", "--no-think", "-c", "30")
c.ask(question, figures, "an answer that fits")
seen = c.ask(b"And a question that is so long that there is no room for it in a context of thirty", rb"skua run: context is full[^\r]*\r\n", "one that does not")
check("nothing is counted for it", b"generated" not in seen, seen)
c.ask(b"/save " + work.encode() + b"/full.json", rb"2 messages written", "the turn is taken back")
c.ask(b"/reset", rb"\r\n", "/reset")
seen = c.ask(question, figures, "again after /reset")
check("the answer after /reset", b"The capital of France is Paris." in seen, seen)
c.leave("Ctrl-D after a full context")

# ---- a failing template: the turn is taken back, the last answer is not said again ----

c = Chat("--temp", "0", "--no-think", "-m", work + "/refusing.gguf")
seen = c.ask(question, figures, "an answer")
seen = c.ask(b"forbidden", rb"skua run: [^\r]*not this[^\r]*\r\n", "a template error")
check("nothing is counted for it", b"generated" not in seen, seen)
c.ask(b"/save " + work.encode() + b"/refused.json", rb"2 messages written", "after a template error")
check("the conversation is as it was", [m["content"] for m in json.load(open(work + "/refused.json"))] == [question.decode(), "The capital of France is Paris."])
c.leave("Ctrl-D after a template error")

# ---- thinking is dimmed on a terminal that can, and nowhere else ----

dim, bright = b"\x1b[2m", b"\x1b[22m"
c = Chat("--temp", "0", "--think")
seen = c.ask(question, figures, "thinking")
check("dimmed", re.search(rb"\x1b\[2mThe user asks for the capital of France.*?\x1b\[22m.*The capital of France is Paris\.\r\n", seen, re.S), seen)
c.leave("thinking")
for term, env, name in (("dumb", None, "TERM=dumb"), ("xterm", {"NO_COLOR": "1"}, "NO_COLOR")):
    c = Chat("--temp", "0", "--think", term=term, env=env)
    seen = c.ask(question, figures, name)
    check(f"{name}: thinking without dimming", b"The user asks" in seen and dim not in seen and bright not in seen, seen)
    c.leave(name)
with open(work + "/stderr", "wb") as f:
    c = Chat("--temp", "0", "--think", err=f)
    seen = c.ask(question, rb"Paris\.\r\n", "standard error into a file")
    c.leave("standard error into a file")
text = open(work + "/stderr", "rb").read()
check("no thinking and no sequences in a file", b"The user asks" not in text and b"\x1b" not in text and b"generated" in text, text)

# ---- drafting: an answer stopped in the middle of a block, and what is asked then, without drafting too ----

options = ("--temp", "0", "--no-think", "--logit-bias", "8177=-100", "-n", "3000") # no end
c = Chat(*options, "--draft", "models/tiny-dflash2-q8_0.gguf", "--draft-fixed", "7")
seen = c.until(rb"/help tells the commands\.\r\n", "drafting, hello")
check("one line says what drafts", seen.count(b"drafting: dflash2 (") == 1 and seen.count(b"drafting") == 1, seen)
c.ask(b"Tell me a story about a fox.", rb"fox\.\r?\n.*a ", "drafting")
c.send(b"\x03")
c.until(rb"end: canceled\r\n", "drafting, canceled")
seen = c.ask(b"/stats", rb"seconds: draft [^\r]*\r\n", "drafting, /stats")
check("drafting, /stats", re.search(rb"drafting: \d+ rounds, \d+ of them with drafts .*\n  dflash2: \d+ rounds, accepted", seen, re.S), seen)
c.ask(b"/save " + work.encode() + b"/drafted.json", rb"2 messages written", "drafting, /save")
c.until(rb"> ", "drafting, prompt")
c.send(b"What is 17 + 25?\r")
drafted = c.until(rb"25\?\r?\n.{40}", "drafting, the next answer")[-40:]
c.send(b"\x03")
c.until(rb"end: canceled\r\n", "drafting, canceled again")
c.leave("drafting")
c = Chat(*options)
c.ask(b"/load " + work.encode() + b"/drafted.json", rb"2 messages read", "without drafting, /load")
c.until(rb"> ", "without drafting, prompt")
c.send(b"What is 17 + 25?\r")
plain = c.until(rb"25\?\r?\n.{40}", "without drafting, the next answer")[-40:]
c.send(b"\x03")
c.until(rb"end: canceled\r\n", "without drafting, canceled")
check("drafting changes no answer after Ctrl-C", drafted == plain and plain, drafted + b" | " + plain)
c.leave("without drafting")

# ---- names from a file, and model output, do no harm to the terminal ----

c = Chat("--temp", "0", "--no-think", "-m", work + "/evil.gguf")
hello = c.until(rb"/help tells the commands\.\r\n", "hello of an evil file")
check("an escaped name", b"e\\x1B[31m\\nxx" in hello and b"\x1b[31m" not in hello, hello)
c.leave("an evil file")

print(good, bad)
PY
python3 - "$MODEL" "$WORK" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
def replaced(key, value, name): # a string key of the file; the tensor data stays aligned
    at = data.index(key) + len(key) + 4
    n = struct.unpack_from("<Q", data, at)[0]
    old = data[at + 8:at + 8 + n]
    new = value(old)
    assert len(new) <= n
    new += b" " * (n - len(new))
    open(f"{sys.argv[2]}/{name}", "wb").write(data[:at + 8] + new + data[at + 8 + n:])
replaced(b"general.name", lambda old: b"e\x1b[31m\nxx"[:len(old)], "evil.gguf")
def refuse(old):
    return b"{%- for m in messages -%}{%- if m.content == 'forbidden' -%}{{ raise_exception('not this') }}{%- endif -%}" \
           b"{{- '<|im_start|>' + m.role + '\\n' + ('<think>\\n\\n</think>\\n\\n' if m.role == 'assistant' else '') + m.content + '<|im_end|>\\n' -}}" \
           b"{%- endfor -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- if enable_thinking is false -%}{{ '\\n</think>\\n\\n' }}{%- endif -%}"
replaced(b"tokenizer.chat_template", refuse, "refusing.gguf")
PY
read -r g b < <(python3 "$WORK/chat.py" "$SKUA" "$WORK")
passed=$((passed + ${g:-0})) failed=$((failed + ${b:-1}))

# ---- no chat where there is no terminal ----

printf 'What is the capital of France?' >"$WORK/in"
run run --temp 0 --no-think -q
check "standard input that is no terminal is one prompt" '[ $status -eq 0 ] && is $'"'The capital of France is Paris.\n'"''

finish
