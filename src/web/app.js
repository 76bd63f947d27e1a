/* The chat page: which conversation is shown, what the user does with it, and how the server is. */
import {ServerError, get_json, get_metrics} from "./api.js";
import {ChatList} from "./chats.js";
import {count, grow, message_view} from "./messages.js";
import {ask_key, set_up_info, set_up_settings, set_up_theme, show_defaults} from "./panels.js";
import {Run} from "./run.js";
import {Store, new_id} from "./store.js";

const $ = id => document.getElementById(id);
const store = new Store(), runs = new Map(), drafts = new Map(); /* by conversation */
const server = {model: null, props: null, up: null};
let chat = store.create(), views = new Map();
const list = new ChatList(store, {open: show_chat, rename, remove: remove_chat}, id => runs.has(id));

/* ---- the shown conversation ---- */

const scroll = $("scroll");
const at_end = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
let following = true;

function to_end() {
    scroll.scrollTop = scroll.scrollHeight;
}

function results_of(message) {
    const at = chat.messages.indexOf(message), out = [];
    for (let i = at + 1; chat.messages[i]?.role === "tool"; i++)
        out.push(chat.messages[i]);
    return out;
}

function update_message(m) {
    const last = chat.messages.findLast(x => x.role !== "tool") === m;
    views.get(m.id)?.update(m.role === "user" ? {} : {results: results_of(m), last, state: runs.get(chat.id)?.state});
}

function show_messages() {
    const shown = chat.messages.filter(m => m.role !== "tool"), wanted = new Set(shown.map(m => m.id));
    for (const [id, view] of views)
        if (!wanted.has(id)) {
            view.root.remove();
            views.delete(id);
        }
    for (const m of shown) {
        if (!views.has(m.id))
            views.set(m.id, message_view(m, act));
        const root = views.get(m.id).root;
        if (root !== $("messages").children[shown.indexOf(m)])
            $("messages").insertBefore(root, $("messages").children[shown.indexOf(m)] ?? null);
        update_message(m);
    }
    $("empty").hidden = shown.length > 0;
    show_state();
}

/* What is round the messages. */
function show_state() {
    const running = runs.has(chat.id), last = chat.messages.findLast(m => m.stats?.total);
    $("title").textContent = chat.messages.length ? chat.title : "New chat";
    document.title = chat.messages.length ? chat.title + " – Skua" : "Skua";
    $("send").replaceChildren(icon_use(running ? "stop" : "send"));
    $("send").setAttribute("aria-label", running ? "Stop" : "Send");
    $("send").title = running ? "Stop (Esc)" : "Send";
    $("send").disabled = !running && !$("prompt").value.trim();
    $("to-end").hidden = at_end();
    const size = server.model?.meta?.n_ctx, used = last?.stats.total;
    $("context").textContent = used && size ? `${count(used)} of ${count(size)} tokens of context` : "";
    $("context").classList.toggle("full", Boolean(used && size && used > 0.9 * size));
}

function icon_use(name) {
    const svg = $("send").querySelector("svg");
    svg.firstChild.setAttribute("href", "#i-" + name);
    return svg;
}

function show_chat(id) {
    const next = id && store.open(id);
    drafts.set(chat.id, $("prompt").value);
    chat = next || store.create();
    views = new Map();
    $("messages").replaceChildren();
    show_messages();
    history.replaceState(null, "", next ? "#" + id : location.pathname + location.search);
    list.show(chat.id);
    close_side();
    $("prompt").value = drafts.get(chat.id) ?? "";
    grow_prompt();
    show_state();
    following = true;
    to_end();
    if (matchMedia("(hover: hover)").matches)
        $("prompt").focus();
}

function rename(id, title) {
    const c = store.open(id);
    if (!c)
        return;
    Object.assign(c, {title, named: true});
    store.save(c);
    show_state();
}

function keep(c = chat, touched = false) {
    store.save(c, touched);
    list.show(chat.id);
    if (store.full)
        toast("The browser has no room left for conversations: delete some.");
}

function remove_chat(id) {
    const gone = store.open(id);
    runs.get(id)?.stop();
    store.remove(id);
    if (id === chat.id)
        show_chat(null);
    list.show(chat.id);
    if (gone)
        toast(`“${gone.title.slice(0, 40)}” is deleted.`, () => {
            store.loaded.set(id, gone);
            store.save(gone);
            show_chat(id);
        });
}

let toast_timer;
function toast(text, undo) {
    clearTimeout(toast_timer);
    $("toast-text").textContent = text;
    $("undo").hidden = !undo;
    $("undo").onclick = () => {
        $("toast").hidden = true;
        undo();
    };
    $("toast").hidden = false;
    toast_timer = setTimeout(() => ($("toast").hidden = true), 8000);
}

/* Read to those who do not see the page. */
function announce(text) {
    $("announce").textContent = text;
}

/* ---- answers ---- */

let frame = 0;
const changed = new Set();
const KEEP_EVERY_MS = 1000;

function on_run_change(run, done) {
    changed.add(run);
    if (!done && performance.now() - (run.kept ?? 0) > KEEP_EVERY_MS) {
        run.kept = performance.now();
        store.save(run.chat);
    }
    frame ||= requestAnimationFrame(() => {
        frame = 0;
        for (const r of changed)
            if (r.chat === chat)
                update_message(r.message);
        changed.clear();
        if (following)
            to_end();
    });
}

async function answer(go_on = null) {
    const c = chat, m = go_on ?? {id: new_id(), role: "assistant", content: "", created: Date.now()};
    const before = go_on ? c.messages.slice(0, c.messages.indexOf(go_on)) : [...c.messages];
    const run = new Run(c, before, m, Boolean(go_on), on_run_change);
    if (!go_on)
        c.messages.push(m);
    runs.set(c.id, run);
    const work = run.start();
    keep(c, true);
    show_messages();
    following = true;
    to_end();
    announce("The answer is on its way.");
    await work;
    runs.delete(c.id);
    if (m.finish === "length" && m.stats?.total >= (server.model?.meta?.n_ctx ?? Infinity) - 1)
        m.stats.full = true;
    if (store.open(c.id) === c && c.messages.includes(m))
        keep(c);
    if (c === chat)
        show_messages();
    announce(m.error ? m.error.text : m.content ? "Answer: " + m.content.slice(0, 2000) : "The answer is complete.");
    if (m.error?.kind === "gone" || m.error?.kind === "cut")
        check_server();
    if (m.error?.kind === "key" && (await ask_key(m.error.text)) && c === chat)
        act("again", m);
    else
        poll_metrics();
}

function send(text) {
    if (!chat.messages.length && !chat.named)
        chat.title = text.trim().split("\n")[0].slice(0, 60) || "New chat";
    chat.messages.push({id: new_id(), role: "user", content: text, created: Date.now()});
    history.replaceState(null, "", "#" + chat.id);
    answer();
}

/* From the user's message that a message belongs to up to the next one. */
function turn_of(m) {
    const all = chat.messages, at = all.indexOf(m);
    let from = at, to = at + 1;
    while (from > 0 && all[from].role !== "user")
        from--;
    while (to < all.length && all[to].role !== "user")
        to++;
    return [from, to];
}

function remove_turn(m) {
    const c = chat, [from, to] = turn_of(m), gone = c.messages.splice(from, to - from);
    keep();
    show_messages();
    toast("The turn is deleted.", () => {
        c.messages.splice(from, 0, ...gone);
        keep(c);
        if (c === chat)
            show_messages();
    });
    $("prompt").focus();
}

function act(name, m, value) {
    const at = chat.messages.indexOf(m);
    if (at < 0 || (runs.has(chat.id) && name !== "copy"))
        return name !== "copy" && toast("Stop the answer first.");
    switch (name) {
    case "copy":
        return copy(m.content);
    case "edit":
        return views.get(m.id).begin_edit();
    case "remove":
        return remove_turn(m);
    case "edited":
        if (m.role === "assistant") {
            m.content = value;
            keep();
            return show_messages();
        }
        chat.messages.length = at;
        if (at === 0 && !chat.named)
            chat.title = "New chat";
        return send(value);
    case "again":
        chat.messages.length = at;
        return answer();
    case "go_on":
        return answer(m);
    case "results":
        chat.messages.push(...value.map(r => ({id: new_id(), role: "tool", call: r.call, content: r.content})));
        return answer();
    }
}

async function copy(text, button) {
    try {
        await navigator.clipboard.writeText(text);
        if (button) {
            button.textContent = "Copied";
            setTimeout(() => (button.textContent = "Copy"), 1500);
        }
        announce("Copied.");
        if (!button)
            toast("Copied.");
    } catch {
        toast("The browser does not let this page copy.");
    }
}

/* ---- the server ---- */

const METRICS_EVERY_MS = 5000, DOWN_EVERY_MS = 2000;
let metrics_timer = 0;

function show_server(up, text) {
    $("dot").className = up ? "dot good" : "dot bad";
    $("metrics-text").textContent = text;
}

async function load_server() {
    try {
        const models = await get_json("v1/models");
        server.model = models.data?.[0] ?? null;
        $("model-name").textContent = server.model?.id ?? "No model";
        $("empty-text").textContent = server.model ? `${server.model.display_name || server.model.id} answers on this server.` : "";
        server.props = await get_json("props");
        server.up = true;
    } catch (e) {
        server.up = e.kind !== "gone";
        show_server(false, e.message);
        if (e.kind === "key" && (await ask_key(e.message)))
            return load_server();
    }
    show_defaults(server.props, server.model);
    show_state();
    return poll_metrics();
}

async function check_server() {
    server.up = false;
    return poll_metrics();
}

function metrics_line(m) {
    const n = name => m["skua_" + name] ?? 0, running = n("requests_running"), waiting = n("requests_waiting"), parts = [];
    if (n("decode_seconds_total") > 0)
        parts.push(`${count(Math.round(n("generated_tokens_total") / n("decode_seconds_total")))} tokens/s`);
    if (n("prompt_tokens_total") > 0)
        parts.push(`${Math.round(100 * n("prompt_tokens_cached_total") / n("prompt_tokens_total"))} % cached`);
    return (running + waiting > 0 ? `${count(running)} running, ${count(waiting)} waiting` : "Server idle") + (parts.length ? "\n" + parts.join(" · ") : "");
}

/* Looks again and again while the page is seen; one timer at a time. */
async function poll_metrics() {
    clearTimeout(metrics_timer);
    let wait = METRICS_EVERY_MS;
    if (!document.hidden) {
        try {
            const metrics = await get_metrics(), back = server.up === false;
            server.up = true;
            show_server(true, metrics_line(metrics));
            if (back || !server.model) {
                announce("The server answers again.");
                return load_server();
            }
        } catch (e) {
            server.up = e.kind === "gone" ? false : server.up;
            show_server(false, e instanceof ServerError ? e.message : "The server cannot be reached.");
            wait = e.kind === "gone" ? DOWN_EVERY_MS : METRICS_EVERY_MS;
        }
    }
    clearTimeout(metrics_timer);
    metrics_timer = setTimeout(poll_metrics, wait);
}

/* ---- the composer and the keyboard ---- */

function grow_prompt() {
    $("prompt").style.height = "auto";
    $("prompt").style.height = $("prompt").scrollHeight + "px";
}

function submit() {
    const text = $("prompt").value;
    if (runs.has(chat.id))
        return runs.get(chat.id).stop();
    if (!text.trim())
        return;
    $("prompt").value = "";
    grow_prompt();
    send(text);
}

function open_side() {
    document.body.classList.add("side-open");
    $("shade").hidden = false;
    $("new-chat").focus();
}

function close_side() {
    document.body.classList.remove("side-open");
    $("shade").hidden = true;
}

function set_up() {
    $("composer").addEventListener("submit", e => {
        e.preventDefault();
        submit();
    });
    $("prompt").addEventListener("input", () => {
        grow_prompt();
        show_state();
    });
    $("prompt").addEventListener("keydown", e => {
        if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            if (!runs.has(chat.id))
                submit();
        }
    });
    document.addEventListener("keydown", e => {
        if (e.key === "Escape" && !document.querySelector("dialog[open]")) {
            if (document.body.classList.contains("side-open"))
                close_side();
            else
                runs.get(chat.id)?.stop();
        } else if (e.key.toLowerCase() === "o" && e.shiftKey && (e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            show_chat(null);
        }
    });
    document.addEventListener("click", e => {
        const button = e.target.closest?.(".copy-code");
        if (button)
            copy(button.closest(".code").querySelector("pre").textContent, button);
    });
    scroll.addEventListener("scroll", () => {
        following = at_end();
        $("to-end").hidden = following;
    }, {passive: true});
    $("to-end").addEventListener("click", () => {
        following = true;
        to_end();
    });
    $("new-chat").addEventListener("click", () => show_chat(null));
    $("open-side").addEventListener("click", open_side);
    $("close-side").addEventListener("click", close_side);
    $("shade").addEventListener("click", close_side);
    document.addEventListener("visibilitychange", () => document.hidden || poll_metrics());
    addEventListener("hashchange", () => show_chat(location.hash.slice(1)));
    addEventListener("pagehide", () => runs.forEach(r => store.save(r.chat)));
    addEventListener("storage", on_storage);
}

/* Another tab has changed something. */
function on_storage(e) {
    store.read_list();
    const id = e.key?.startsWith("skua.chat.") ? e.key.slice("skua.chat.".length) : null;
    if (id && !runs.has(id) && !/"running":true/.test(e.newValue ?? "")) {
        store.loaded.delete(id);
        if (id === chat.id && e.newValue)
            show_chat(id);
    }
    list.show(chat.id);
}

set_up();
set_up_theme();
set_up_settings(load_server);
set_up_info(() => server);
show_chat(store.chats.some(c => "#" + c.id === location.hash) ? location.hash.slice(1) : null);
load_server();
