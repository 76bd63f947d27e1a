/* Talking to the server. Addresses are relative to the page, so that it also works behind a proxy that adds a path. */
import {api_key, settings} from "./store.js";

/* kind: "gone" (not reachable), "cut" (in mid-answer), "key", "busy", "context", "refused"; retry: seconds after which to try again. */
export class ServerError extends Error {
    constructor(kind, text, extra = {}) {
        super(text);
        Object.assign(this, {kind}, extra);
    }
}

const count = n => Number(n).toLocaleString("en");

function head() {
    const key = api_key.get();
    return {"Content-Type": "application/json", ...(key ? {Authorization: "Bearer " + key} : {})};
}

async function ask(path, options = {}) {
    try {
        return await fetch(path, {headers: head(), cache: "no-store", credentials: "omit", ...options});
    } catch (e) {
        if (e.name === "AbortError")
            throw e;
        throw new ServerError("gone", "The server cannot be reached. Is it running?");
    }
}

function error_of(e, status, retry) {
    const text = e?.message ?? `The server answered with status ${status}.`;
    if (status === 401)
        return new ServerError("key", api_key.get() ? "The server does not accept this API key." : "This server needs an API key.");
    if (e?.code === "context_length_exceeded")
        return new ServerError("context", e.n_ctx && e.n_prompt_tokens
            ? `This conversation has ${count(e.n_prompt_tokens)} tokens; the model's context holds ${count(e.n_ctx)}. ` +
              "Delete or shorten earlier turns, or start a new chat."
            : text);
    if (status === 429)
        return new ServerError("busy", "The server is busy: " + text, {retry: retry ?? 2});
    if (status === 503 && retry)
        return new ServerError("busy", "The server is not ready: " + text, {retry});
    return new ServerError("refused", text);
}

async function failure(response) {
    const body = await response.json().catch(() => null), retry = parseFloat(response.headers.get("retry-after"));
    return error_of(body?.error, response.status, retry > 0 ? Math.min(retry, 60) : undefined);
}

export async function get_json(path) {
    const response = await ask(path);
    if (!response.ok)
        throw await failure(response);
    return response.json();
}

/* Samples of Prometheus's text format: name (without labels) -> sum. */
export async function get_metrics() {
    const response = await ask("metrics");
    if (!response.ok)
        throw await failure(response);
    const sums = {};
    for (const line of (await response.text()).split("\n")) {
        const m = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
        if (m)
            sums[m[1]] = (sums[m[1]] ?? 0) + Number(m[2]);
    }
    return sums;
}

/* ---- a chat request ---- */

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty"];

/* keep_reasoning: for answers inside a loop of tools, whose thinking the template shows to the model again. */
function wire_messages(messages) {
    const out = [], last_user = messages.findLastIndex(m => m.role === "user");
    messages.forEach((m, i) => {
        if (m.role === "tool") {
            out.push({role: "tool", tool_call_id: m.call, content: m.content});
        } else if (m.role === "user") {
            out.push({role: "user", content: m.content});
        } else if (m.content || m.calls?.length) {
            const calls = m.calls?.map(c => ({id: c.id, type: "function", function: {name: c.name, arguments: c.arguments}}));
            out.push({role: "assistant", content: m.content || null, ...(i > last_user && m.reasoning ? {reasoning_content: m.reasoning} : {}),
                      ...(calls?.length ? {tool_calls: calls} : {})});
        }
    });
    return out;
}

export function chat_request(messages, go_on) {
    const s = settings.values, list = wire_messages(messages);
    if (s.system)
        list.unshift({role: "system", content: s.system});
    const body = {messages: list, stream: true, stream_options: {include_usage: true}, return_progress: true};
    for (const name of NUMBERS)
        if (typeof s[name] === "number")
            body[name] = s[name];
    if (s.thinking === "on" || s.thinking === "off")
        body.enable_thinking = s.thinking === "on";
    if (typeof s.thinking_budget === "number" && s.thinking !== "off")
        body.thinking_budget = s.thinking_budget;
    if (s.speculation === "off")
        body.speculative = false;
    if (s.tools)
        body.tools = JSON.parse(s.tools);
    if (go_on)
        body.continue_final_message = true;
    return body;
}

/* The values of "data:" lines, one event each. */
async function* events(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const {done, value} = await reader.read();
        rest += value ?? "";
        const lines = rest.split(/\r?\n/);
        rest = lines.pop();
        for (const line of lines)
            if (line.startsWith("data:"))
                yield line.slice(5).trim();
        if (done)
            return;
    }
}

/* Send a request; sink is called with every chunk. Returns when the answer is complete. */
export async function stream_chat(body, signal, sink) {
    const response = await ask("v1/chat/completions", {method: "POST", body: JSON.stringify(body), signal});
    if (!response.ok)
        throw await failure(response);
    try {
        for await (const data of events(response.body)) {
            if (data === "[DONE]")
                return;
            const chunk = JSON.parse(data);
            if (chunk.error)
                throw error_of(chunk.error, 0);
            sink(chunk);
        }
    } catch (e) {
        if (e.name === "AbortError" || e instanceof ServerError)
            throw e;
    }
    throw new ServerError("cut", "The connection was lost in mid-answer.");
}
