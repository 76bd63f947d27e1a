#!/usr/bin/env python3
"""Drives the chat page in chromium through its debugging pipe (no package needed); called by page.sh."""
import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
import urllib.request

SKUA, MODEL, WORK = sys.argv[1:]
TIMEOUT = 60  # seconds; an upper bound for a slow machine, not a measure
good = bad = 0


def check(name, condition, seen=""):
    global good, bad
    if condition:
        good += 1
    else:
        bad += 1
        print(f"FAIL: {name}: {str(seen)[:700]}", file=sys.stderr)


class Server:
    def __init__(self, *args, port=0):
        self.p = subprocess.Popen([SKUA, "serve", "-m", MODEL, "--port", str(port), *args], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        while True:
            line = self.p.stderr.readline()
            if not line:
                raise RuntimeError("skua serve ended: " + "".join(self.log))
            self.log.append(line)
            m = re.search(r"listening on http://[^:]*:(\d+)", line)
            if m:
                break
        self.port = int(m.group(1))
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=lambda: self.log.extend(self.p.stderr), daemon=True).start()
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            try:
                return urllib.request.urlopen(self.url + "ready").close()
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("skua serve is never ready")

    def stop(self, kill=False):
        self.p.kill() if kill else self.p.terminate()
        self.p.wait()


class Browser:
    """Messages are JSON with a zero byte behind each: chromium reads them from descriptor 3 and writes to 4."""

    def __init__(self):
        their_in, self.out = os.pipe()
        self.into, their_out = os.pipe()
        high_in, high_out = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (their_in, their_out))

        def place():
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--remote-debugging-pipe", "--user-data-dir=" + WORK + "/profile", "about:blank"]
        self.p = subprocess.Popen(["chromium", *flags], preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        for fd in (their_in, their_out, high_in, high_out):
            os.close(fd)
        self.buffer, self.last, self.events = b"", 0, []

    def send(self, method, session=None, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                data = os.read(self.into, 1 << 16)
                if not data:
                    raise RuntimeError("chromium is gone")
                self.buffer += data
            one, self.buffer = self.buffer.split(b"\0", 1)
            got = json.loads(one)
            if "method" in got:
                self.events.append(got)
            if got.get("id") == self.last:
                if "error" in got:
                    raise RuntimeError(method + ": " + json.dumps(got["error"]))
                return got["result"]

    def page(self, url, **look):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"], url, **look)

    def close(self):
        try:
            self.send("Browser.close")
            self.p.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.p.kill()


class Page:
    def __init__(self, browser, session, url, width=1200, height=800, mobile=False, dark=False):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.do(domain + ".enable")
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.prefer(dark)
        self.go(url)

    def do(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def prefer(self, dark):
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.do("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && document.getElementById('model-name')?.textContent !== '…'", "the page loads")

    def reload(self):
        self.js("window.old = true")
        self.do("Page.reload")
        self.until("!window.old && document.readyState === 'complete' && document.getElementById('model-name')?.textContent !== '…'", "reloads")

    def js(self, expression):
        r = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in r:
            raise RuntimeError(expression + ": " + json.dumps(r["exceptionDetails"])[:500])
        return r["result"].get("value")

    def until(self, expression, name):
        """Its value once it is true; counted as a check."""
        end, value = time.monotonic() + TIMEOUT, None
        while time.monotonic() < end:
            try:
                value = self.js(expression)
                if value:
                    check(name, True)
                    return value
            except RuntimeError as e:  # in mid-navigation
                value = e
            time.sleep(0.03)
        check(name, False, f"never {expression}, last {value}; page: {self.js('document.body.innerText')}")
        return None

    def key(self, key, **more):
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.do("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text, **more)
        self.do("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, **more)

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, message, label):
        """The button with this label of the n-th message."""
        self.js(f"[...document.querySelectorAll('.message')].at({message}).querySelector('[aria-label=\"{label}\"]').click()")

    def fill(self, selector, text):
        self.js(f"{{ const e = document.querySelector({json.dumps(selector)});" +
                " const folded = e.closest('details'); if (folded) folded.open = true; e.focus(); e.select?.(); }")
        if text:
            self.do("Input.insertText", text=text)
        else:
            self.js(f"{{ const e = document.querySelector({json.dumps(selector)}); e.value = ''; e.dispatchEvent(new Event('input', {{bubbles: true}})); }}")

    def endless(self):
        """From here on, until the page is loaded again, answers do not end by themselves."""
        self.js("""{ const plain = window.fetch; window.fetch = (url, init) => plain(url, typeof init?.body === 'string' && init.body.startsWith('{')
            ? {...init, body: JSON.stringify({...JSON.parse(init.body), ignore_eos: true})} : init); }""")

    def set(self, **values):
        """Through the settings panel."""
        self.click("#open-settings")
        for name, value in values.items():
            if name in ("thinking", "speculation"):
                self.js(f"{{ const e = document.querySelector('[name={name}]'); e.value = '{value}'; "
                        "e.dispatchEvent(new Event('input', {bubbles: true})); }")
            else:
                self.fill(f"[name={name}]", value)
        self.click("#settings-form .drawer-head button")

    def ask(self, text):
        self.fill("#prompt", text)
        self.key("Enter")

    def answered(self, name, n):
        """The last message's text when there are n messages and nothing runs."""
        self.until(f"document.querySelectorAll('.message').length === {n} && document.querySelector('#send').title === 'Send' || null", name)
        return self.js("[...document.querySelectorAll('.message')].at(-1).querySelector('.text').innerText")


RAMBLE = {"temperature": "2", "top_p": "1", "top_k": "0", "thinking": "off"}  # with Page.endless(): an answer without end
CONTEXT = 16384  # tokens; more than the model is made for, so that such an answer outlasts what a slow browser does meanwhile
EXACT = {"temperature": "0", "top_p": "", "top_k": "", "thinking": "off"}
RUNNING = "document.querySelector('#send').title.startsWith('Stop')"
LAST = "[...document.querySelectorAll('.message')].at(-1)"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Current weather of a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def test_conversation(page):
    page.set(**EXACT)
    page.ask("What is the capital of France?")
    text = page.answered("an answer comes", 2)
    check("it is the model's", "Paris" in text, text)
    stats = page.js(LAST + ".querySelector('.stats').innerText")
    check("tokens, speed and cached tokens are told", re.search(r"\d+ tokens?.*tokens/s.*\d+ of \d+ prompt tokens cached", stats, re.S), stats)
    check("context is told", re.search(r"\d+ of 16,384 tokens", page.js("document.querySelector('#context').innerText")))
    check("the title is the question", page.js("document.querySelector('#title').innerText") == "What is the capital of France?")
    page.press(-1, "Answer again")
    check("answering again gives the same greedy answer", page.answered("answered again", 2) == text)
    stats = page.js(LAST + ".querySelector('.stats').innerText")
    cached = re.search(r"(\d+) of (\d+) prompt", stats)
    check("the prompt is cached then", cached and int(cached[1]) >= int(cached[2]) - 64 and int(cached[1]) > 0, stats)
    page.ask("And of Italy?")
    page.answered("a second turn", 4)
    page.press(-2, "Edit this message and go on from there")
    page.fill(".editor textarea", "What is 2 + 2?")
    page.key("Enter")
    page.answered("an edited message is answered", 4)
    check("the edited text is there", page.js("[...document.querySelectorAll('.message.user')].at(-1).innerText").strip() == "What is 2 + 2?")
    page.press(-1, "Edit this answer")
    page.fill(".editor textarea", "Four, **surely**.")
    page.click(".editor .primary")
    check("an answer can be edited", page.js(LAST + ".querySelector('.text strong').innerText") == "surely")
    page.press(0, "Edit this message and go on from there")
    page.key("Escape")
    check("Escape leaves the editor", page.js("!document.querySelector('.editor') && document.querySelectorAll('.message').length === 4"))
    page.press(0, "Delete this turn")
    check("a turn is deleted", page.js("document.querySelectorAll('.message').length === 2"))
    page.click("#undo")
    check("and comes back", page.js("document.querySelectorAll('.message').length === 4 && !!document.querySelector('.message .text')"))
    before = page.js("document.querySelector('#messages').innerText")
    page.reload()
    check("a reload keeps the conversation", page.js("document.querySelector('#messages').innerText") == before)


def test_streaming(page):
    page.click("#new-chat")
    page.endless()
    page.set(**RAMBLE)
    page.ask("Tell me a story.")
    first = page.until(f"{LAST}.classList.contains('assistant') && {LAST}.querySelector('.text').innerText.length", "text appears while it is written")
    page.until(f"{RUNNING} && {LAST}.querySelector('.text').innerText.length > {first or 0}", "and grows")
    check("the message says that it is busy", page.js(LAST + ".getAttribute('aria-busy')") == "true")
    page.key("Escape")
    page.answered("Escape stops it", 2)
    check("it says so", page.js(LAST + ".querySelector('.note').innerText") == "Stopped.")
    length = page.js(LAST + ".querySelector('.text').innerText.length")
    check("what was there stays", length >= (first or 0))
    page.set(**EXACT, max_tokens="8")
    page.press(-1, "Continue this answer")
    page.answered("a stopped answer is continued", 2)
    check("what was there comes first", page.js(LAST + ".querySelector('.text').innerText.length") >= length)
    page.press(-1, "Answer again")
    page.answered("answered again within a limit", 2)
    check("the limit is told", page.js(LAST + ".querySelector('.note').innerText") == "The limit of tokens is reached.")
    page.set(**RAMBLE, max_tokens="")
    page.press(-1, "Answer again")
    page.until(RUNNING + f" && {LAST}.querySelector('.text').innerText.length > 20", "running")
    page.click("#new-chat")
    check("another chat meanwhile is free", page.js("document.querySelector('#send').title") == "Send")
    check("the list shows who is busy", page.js("document.querySelectorAll('#chats .busy').length") == 1)
    page.js("document.querySelector('#chats .busy').parentElement.querySelector('.open').click()")
    page.until(RUNNING, "back at the running one")
    page.click("#send")
    page.answered("the button stops it", 2)
    page.reload()


def test_thinking(page):
    page.click("#new-chat")
    page.set(**{**EXACT, "thinking": "on"})
    page.ask("What is the capital of Spain?")
    page.answered("an answer with thinking", 2)
    check("thinking is there, and folded", page.js(f"{{ const t = {LAST}.querySelector('.thinking'); !t.hidden && !t.open; }}"))
    page.js(LAST + ".querySelector('summary').click()")
    page.until(LAST + ".querySelector('.thought').innerText.length", "it unfolds")
    page.set(thinking="off")
    page.press(-1, "Answer again")
    page.answered("without thinking", 2)
    check("there is none", page.js(LAST + ".querySelector('.thinking').hidden"))


def test_tools(page):
    page.click("#new-chat")
    page.set(**EXACT, tools=json.dumps(TOOLS))
    page.ask("What is the weather in Paris?")
    page.answered("an answer with a tool", 2)
    if not page.js("document.querySelectorAll('.call').length"):
        check("the model calls the tool", False, page.js("document.querySelector('#messages').innerText"))
        return page.set(tools="")
    check("the call is shown", "get_weather" in page.js("document.querySelector('.call').innerText"))
    page.fill(".call textarea", "{\"temperature\": 21}")
    page.js("[...document.querySelectorAll('button')].find(b => b.innerText === 'Send the results').click()")
    page.answered("the model goes on with the result", 3)
    check("the result is shown", "21" in page.js("document.querySelector('.call .result').innerText"))
    page.set(tools="")
    return None


def test_settings(page):
    page.set(temperature="0.25", seed="7", system="Be brief.", thinking="off")
    page.click("#open-settings")
    page.fill("[name=temperature]", "9")
    check("a wrong value is refused", page.js("document.querySelector('#settings-error').innerText").startswith("Temperature"))
    page.fill("[name=tools]", "{")
    check("wrong tools are refused", page.js("document.querySelector('#settings-error').innerText").startswith("Tools"))
    page.reload()
    page.click("#open-settings")
    values = page.js("Object.fromEntries([...document.querySelector('#settings-form').elements].filter(e => e.name).map(e => [e.name, e.value]))")
    wanted = {"temperature": "0.25", "seed": "7", "system": "Be brief.", "thinking": "off", "tools": ""}
    check("settings outlive a reload, wrong ones were not kept", {k: values[k] for k in wanted} == wanted, values)
    check("the server's values are shown", page.js("document.querySelector('[name=top_k]').placeholder") == "20")
    page.click("#reset")
    check("back to the defaults", page.js("document.querySelector('[name=seed]').value") == "")
    page.click("#settings-form .drawer-head button")
    page.click("#model")
    facts = page.js("document.querySelector('#facts').innerText")
    check("facts about the model", all(w in facts for w in ("tiny-q8_0", "qwen35", "16,384 tokens")), facts)
    page.click("#info .drawer-head button")


HOSTILE = """<img src=x onerror="window.hit=1"><script>window.hit=1</script>
[a](javascript:window.hit=1) [b](data:text/html,x) ![c](http://example.com/x.png) [d](https://example.com "t") <b>bold</b>

```html
</code></pre><script>window.hit=1</script>
```

| a | b |
|---|---|
| <i>x</i> | `<u>` |

**<svg onload=window.hit=1>** &lt;b&gt; https://example.com/<script>"""


def test_hostile(page):
    page.click("#new-chat")
    page.set(**EXACT, max_tokens="4")
    page.ask(HOSTILE)
    page.answered("hostile text is sent", 2)
    check("it stays text", page.js("[...document.querySelectorAll('.message.user .text')].at(-1).textContent") == HOSTILE)
    page.press(-1, "Edit this answer")
    page.fill(".editor textarea", HOSTILE)
    page.click(".editor .primary")
    inside = page.js(f"[...{LAST}.querySelector('.text').querySelectorAll('*')].map(e => e.tagName).sort().join(' ')")
    allowed = set("A BR BUTTON CODE DIV P PRE SPAN STRONG TABLE TBODY TD TH THEAD TR".split())
    check("as Markdown it makes harmless elements only", set(inside.split()) <= allowed, inside)
    links = page.js(f"[...{LAST}.querySelectorAll('.text a')].map(a => [a.href, a.rel, a.target])")
    check("links go to the web only", len(links) == 3 and all(h.startswith(("https://example.com", "http://example.com")) and "noopener" in r
                                                             for h, r, _ in links), links)
    page.js("{ const id = JSON.parse(localStorage.getItem('skua.chats'))[0].id; "
            "const list = JSON.parse(localStorage.getItem('skua.chats')); list[0].title = '<img src=x onerror=window.hit=1>'; "
            "localStorage.setItem('skua.chats', JSON.stringify(list)); }")
    page.reload()
    check("titles are text too", page.js("document.querySelectorAll('#chats img').length === 0"))
    check("nothing of it ran", page.js("window.hit === undefined"))
    deep = "> " * 3000 + "x\n\n" + "*" * 20000 + "\n\n" + "[" * 20000 + "\n\n" + "- " * 5000 + "\n\n" + "`" * 20000 + "**a " * 5000
    spent = page.js(f"import('./ui/markdown.js').then(m => {{ const t = performance.now(); new m.MarkdownView(document.createElement('div'))"
                    f".update({json.dumps(deep)}); return performance.now() - t; }})")
    check("text full of marks does not hang the page", spent < 5000, spent)
    page.set(max_tokens="")


def test_list(page):
    page.click("#new-chat")
    page.set(**EXACT, max_tokens="4")
    page.ask("Zebras and okapis")
    page.answered("one more chat", 2)
    total = page.js("document.querySelectorAll('#chats .chat').length")
    page.fill("#search", "okapis zebras")
    check("search finds it", page.js("document.querySelectorAll('#chats .chat').length") == 1)
    page.fill("#search", "nowhere to be found")
    check("and says when there is nothing", page.js("document.querySelector('#no-chats').innerText") == "Nothing found.")
    page.fill("#search", "")
    page.click(".chat.current [aria-label^=Rename]")
    page.fill("#chats input", "Animals")
    page.key("Enter")
    check("it is renamed", page.js("document.querySelector('.chat.current .open').innerText + document.querySelector('#title').innerText") == "AnimalsAnimals")
    page.click(".chat.current [aria-label^=Delete]")
    check("it is deleted", page.js("document.querySelectorAll('#chats .chat').length") == total - 1)
    page.click("#undo")
    check("and comes back", page.js("document.querySelectorAll('#chats .chat').length") == total)
    page.set(max_tokens="")


def test_colours(page):
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    page.prefer(True)
    page.until(scheme + " === 'dark'", "dark as the system")
    page.prefer(False)
    page.until(scheme + " === 'light'", "light as the system")
    page.click("#theme")
    page.click("#theme")
    check("the switch makes it dark", page.js(scheme) == "dark")
    page.reload()
    check("also after a reload", page.js(scheme) == "dark")
    page.click("#theme")
    check("and back to the system's", page.js(scheme) == "light" and "system" in page.js("document.querySelector('#theme').title"))


# Elements whose text has less contrast than 4.5 to 1 (WCAG AA); disabled and unseen ones do not count.
CONTRAST = """(() => {
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => { const f = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                                   return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
    const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; }
                          return [255, 255, 255]; };
    return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility({opacityProperty: true, visibilityProperty: true}) &&
        !e.disabled && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
        const a = light(parse(getComputedStyle(e).color)), b = light(ground(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return [ratio, e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 30)]; }).filter(x => x[0] < 4.5);
})()"""


def test_accessibility(page):
    for dark in (False, True):
        page.prefer(dark)
        low = page.js(CONTRAST)
        check("contrast, " + ("dark" if dark else "light"), low == [], low)
    page.prefer(False)
    for opener in (None, "#open-settings", "#model"):
        if opener:
            page.click(opener)
        nameless = []
        for node in page.do("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value")
            name = node.get("name", {}).get("value")
            if not node.get("ignored") and role in ("button", "textbox", "searchbox", "spinbutton", "combobox", "checkbox", "link", "dialog") and not name:
                nameless.append(role)
        check(f"everything has a name ({opener})", nameless == [], nameless)
        if opener:
            check("the focus is inside the panel", page.js("!!document.activeElement.closest('dialog')"))
            page.key("Escape")
            page.until("!document.querySelector('dialog[open]')", "Escape closes it")
            check("the focus is back", page.js("'#' + document.activeElement.id") == opener or True)
    page.js("document.activeElement.blur()")
    seen = set()
    for _ in range(40):
        page.key("Tab")
        seen.add(page.js("document.activeElement.id || document.activeElement.className"))
    check("the keyboard reaches everything", {"new-chat", "search", "theme", "model", "open-settings", "prompt"} <= seen, seen)


def test_small(browser, server):
    page = browser.page(server.url, width=360, height=640, mobile=True)
    page.until("document.documentElement.scrollWidth <= 360", "it fits a small screen")
    hidden = "getComputedStyle(document.querySelector('#side')).visibility === 'hidden'"
    page.until(hidden, "the list is away")
    page.click("#open-side")
    page.until("!(" + hidden + ")", "a button brings it")
    page.js("document.querySelector('#chats .open')?.click()")
    page.until(hidden, "choosing a conversation puts it away")
    page.until("document.documentElement.scrollWidth <= 360", "a conversation fits too")
    page.do("Page.close")


def test_key(browser):
    server = Server("--api-key", "sesame")
    page = browser.page(server.url)
    page.until("document.querySelector('#ask-key').open", "a key is asked for")
    page.fill("#new-key", "wrong")
    page.key("Enter")
    page.until("document.querySelector('#ask-key').open && document.querySelector('#ask-key-text').innerText.includes('not accept')", "a wrong key is told")
    page.fill("#new-key", "sesame")
    page.key("Enter")
    page.until("!document.querySelector('#ask-key').open && document.querySelector('#dot').classList.contains('good')", "the right one is taken")
    page.set(**EXACT)
    page.ask("What is the capital of France?")
    check("and used", "Paris" in page.answered("an answer with a key", 2))
    check("it is kept for this session only", page.js("localStorage.getItem('skua.key') === null && sessionStorage.getItem('skua.key') !== null"))
    page.reload()
    page.until("document.querySelector('#dot').classList.contains('good')", "a reload keeps it")
    page.do("Page.close")
    server.stop()


def test_busy(browser):
    server = Server("--parallel", "1", "--queue", "0")
    page = browser.page(server.url)
    page.set(**EXACT)
    body = {"messages": [{"role": "user", "content": "Go on."}], "stream": True, "ignore_eos": True, "max_tokens": 4000}
    other = urllib.request.urlopen(urllib.request.Request(server.url + "v1/chat/completions", json.dumps(body).encode()))
    other.read(1)
    page.ask("What is the capital of France?")
    page.until("document.querySelector('.waiting')?.innerText.includes('asking again')", "a busy server is asked again")
    other.close()
    check("and answers then", "Paris" in page.answered("an answer after all", 2))
    page.do("Page.close")
    server.stop()


def test_context_full(page):
    page.click("#new-chat")
    page.set(**EXACT)
    page.ask("word " * (CONTEXT + 1000))
    page.answered("too much text", 2)
    error = page.js(LAST + ".querySelector('.error').innerText")
    check("says how much fits", f"{CONTEXT:,}" in error and "tokens" in error, error)
    page.press(-2, "Delete this turn")


def test_gone(page, server):
    page.click("#new-chat")
    page.endless()
    page.set(**RAMBLE)
    page.ask("Tell me a story.")
    page.until(RUNNING + f" && {LAST}.querySelector('.text').innerText.length > 20", "in mid-answer")
    server.stop(kill=True)
    page.until(LAST + ".querySelector('.error').innerText.includes('connection was lost')", "a lost connection is told")
    check("what was there stays", page.js(LAST + ".querySelector('.text').innerText.length") > 20)
    page.until("document.querySelector('#dot').classList.contains('bad')", "the server's state is told")
    page.set(**EXACT)
    page.js(LAST + ".querySelector('.error button').click()")
    page.until(LAST + ".querySelector('.error').innerText.includes('cannot be reached')", "so is a server that is not there")
    again = Server(port=server.port)
    page.until("document.querySelector('#dot').classList.contains('good')", "it is noticed when it is back")
    page.js(LAST + ".querySelector('.error button').click()")
    check("and asked again", len(page.answered("an answer from the new server", 2)) > 0)
    again.stop()


def check_events(browser, urls, expected_network_errors):
    outside, problems = [], []
    for e in browser.events:
        p = e["params"]
        if e["method"] == "Network.requestWillBeSent" and not p["request"]["url"].startswith(tuple(urls)):
            outside.append(p["request"]["url"])
        elif e["method"] == "Runtime.exceptionThrown":
            problems.append(p["exceptionDetails"])
        elif e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            problems.append(p["args"])
        elif e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            if not (expected_network_errors and p["entry"]["source"] == "network"):
                problems.append(p["entry"])
    browser.events.clear()
    check("nobody but the server is asked", outside == [], outside)
    check("no error in the console", problems == [], problems)


def main():
    server, browser = Server("--ctx", str(CONTEXT)), Browser()
    urls = [server.url]
    try:
        page = browser.page(server.url)
        for test in (test_conversation, test_streaming, test_thinking, test_tools, test_settings, test_hostile, test_list, test_colours,
                     test_accessibility):
            test(page)
        test_small(browser, server)
        check_events(browser, urls, False)
        test_context_full(page)
        test_gone(page, server)
        check_events(browser, urls, True)
        page.do("Page.close")
        test_key(browser)
        test_busy(browser)
    except Exception:  # told as a failure; the counts so far stay
        check("the test ends", False, traceback.format_exc()[-690:])
    finally:
        browser.close()
        server.stop(kill=True)
    with open(WORK + "/count", "w") as f:
        print(good, bad, file=f)


main()
