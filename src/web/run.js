/* One answer on its way: the request, what its chunks add to the message, waiting and asking again when the server is busy. */
import {ServerError, chat_request, stream_chat} from "./api.js";
import {count} from "./messages.js";

const MOST_TRIES = 6;

function pause(s, signal) {
    return new Promise((done, fail) => {
        const timer = setTimeout(done, s * 1000);
        signal.addEventListener("abort", () => {
            clearTimeout(timer);
            fail(new DOMException("", "AbortError"));
        });
    });
}

export class Run {
    /* before: the messages that the answer follows; go_on: message is continued. on_change is called after every change. */
    constructor(chat, before, message, go_on, on_change) {
        Object.assign(this, {chat, before, message, go_on, on_change});
        this.controller = new AbortController();
        this.state = null;
        this.began = performance.now();
        this.earlier = go_on ? message.stats?.generated ?? 0 : 0;
    }

    stop() {
        this.controller.abort();
    }

    /* Never throws: what went wrong is in the message. */
    async start() {
        const m = this.message;
        m.running = true;
        delete m.error;
        delete m.finish;
        try {
            await this.send();
            m.finish ??= "stop";
        } catch (e) {
            if (e.name === "AbortError")
                m.finish = "stopped";
            else if (e instanceof ServerError)
                m.error = {kind: e.kind, text: e.message};
            else
                m.error = {kind: "refused", text: e instanceof SyntaxError ? "The tools in the settings are no valid JSON." : "The page failed: " + e.message};
        }
        delete m.running;
        this.on_change(this, true);
        return m;
    }

    async send() {
        const body = chat_request(this.go_on ? [...this.before, this.message] : this.before, this.go_on), signal = this.controller.signal;
        for (let tries = 1;; tries++) {
            try {
                this.began = performance.now();
                return await stream_chat(body, signal, chunk => this.take(chunk));
            } catch (e) {
                if (e.kind !== "busy" || tries === MOST_TRIES)
                    throw e;
                for (let left = Math.ceil(e.retry); left > 0; left--) {
                    this.state = `The server is busy; asking again in ${left} s`;
                    this.on_change(this);
                    await pause(1, signal);
                }
                this.state = null;
            }
        }
    }

    take(chunk) {
        const m = this.message, choice = chunk.choices?.[0], delta = choice?.delta ?? {}, now = performance.now();
        const text = delta.content || delta.reasoning_content || delta.tool_calls;
        if (text && this.first === undefined)
            this.first = (now - this.began) / 1000;
        if (delta.reasoning_content)
            m.reasoning = (m.reasoning ?? "") + delta.reasoning_content;
        if ((delta.content || delta.tool_calls) && m.reasoning && m.thought === undefined)
            m.thought = (now - this.began) / 1000 - this.first;
        if (delta.content)
            m.content += delta.content;
        for (const call of delta.tool_calls ?? [])
            this.take_call(call);
        if (choice?.finish_reason)
            m.finish = choice.finish_reason;
        if (chunk.prompt_progress) {
            const {processed, total} = chunk.prompt_progress;
            this.state = `Reading the prompt: ${count(processed)} of ${count(total)} tokens`;
        }
        this.take_numbers(chunk);
        this.on_change(this);
    }

    take_call(call) {
        const calls = (this.message.calls ??= []), at = call.index ?? calls.length;
        const kept = (calls[at] ??= {id: call.id, name: "", arguments: ""});
        const part = call.function ?? call.custom ?? {};
        kept.name += part.name ?? "";
        kept.arguments += part.arguments ?? part.input ?? "";
    }

    take_numbers(chunk) {
        const m = this.message, t = chunk.timings, u = chunk.usage;
        if (!t && !u)
            return;
        m.stats = {...m.stats, first: this.first};
        if (t)
            Object.assign(m.stats, {speed: t.predicted_per_second, drafted: t.draft_n, accepted: t.draft_n_accepted, prompt: t.cache_n + t.prompt_n,
                                    cached: t.cache_n, generated: this.earlier + t.predicted_n});
        if (u)
            Object.assign(m.stats, {prompt: u.prompt_tokens, cached: u.prompt_tokens_details?.cached_tokens ?? 0,
                                    generated: this.earlier + u.completion_tokens, total: u.total_tokens});
    }
}
