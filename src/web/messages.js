/* How messages look. A view belongs to one message; update() brings it to what the message holds now. act(name, message, ...) is called for
 * what the user wants: copy, edit, edited, again, go_on, remove, results. */
import {MarkdownView, element} from "./markdown.js";

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
    const svg = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", "#i-" + name);
    svg.append(use);
    return svg;
}

export function icon_button(name, label, action) {
    const b = element("button", {type: "button", class: "icon", "aria-label": label, title: label}, icon(name));
    b.addEventListener("click", action);
    return b;
}

export function text_button(label, action, kind) {
    const b = element("button", {type: "button", class: kind}, label);
    b.addEventListener("click", action);
    return b;
}

export const count = n => Number(n).toLocaleString("en");
export const seconds = s => (s < 10 ? s.toFixed(1) : Math.round(s).toString()) + " s";

export function grow(area) {
    area.style.height = "auto";
    area.style.height = area.scrollHeight + 2 + "px";
}

function stat_texts(s) {
    const out = [];
    if (s.generated !== undefined)
        out.push(`${count(s.generated)} token${s.generated === 1 ? "" : "s"}`);
    if (s.speed > 0)
        out.push(`${s.speed < 10 ? s.speed.toFixed(1) : Math.round(s.speed)} tokens/s`);
    if (s.first !== undefined)
        out.push(`first after ${seconds(s.first)}`);
    if (s.prompt !== undefined)
        out.push(`${count(s.cached ?? 0)} of ${count(s.prompt)} prompt tokens cached`);
    if (s.drafted > 0)
        out.push(`${Math.round(100 * s.accepted / s.drafted)} % of ${count(s.drafted)} drafts accepted`);
    return out;
}

class MessageView {
    constructor(message, act) {
        this.message = message;
        this.act = act;
        this.root = element("article", {class: "message " + message.role, "data-role": message.role});
        this.root.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
        this.editor = null;
    }

    button(name, label, action) {
        return icon_button(name, label, () => this.act(action, this.message));
    }

    /* The message as a field; save is called with the new text. */
    edit(label, save) {
        const area = element("textarea", {"aria-label": "Edit the message"}), inside = [...this.root.children];
        const close = () => {
            this.editor.remove();
            this.editor = null;
            this.root.classList.remove("editing");
            inside.forEach(e => (e.style.display = ""));
        };
        const done = () => {
            close();
            save(area.value);
        };
        if (this.editor)
            return;
        area.value = this.message.content;
        area.addEventListener("input", () => grow(area));
        area.addEventListener("keydown", e => {
            if (e.key === "Escape") {
                e.stopPropagation();
                close();
            } else if (e.key === "Enter" && !e.shiftKey && !e.isComposing && this.message.role === "user") {
                e.preventDefault();
                done();
            }
        });
        this.editor = element("div", {class: "editor"}, area,
                              element("div", {class: "row end"}, text_button("Cancel", close), text_button(label, done, "primary")));
        inside.forEach(e => (e.style.display = "none"));
        this.root.classList.add("editing");
        this.root.append(this.editor);
        grow(area);
        area.focus();
    }
}

class UserView extends MessageView {
    constructor(message, act) {
        super(message, act);
        this.text = element("div", {class: "text"});
        this.root.append(this.text, element("div", {class: "bar"}, element("div", {class: "actions"},
            this.button("copy", "Copy this message", "copy"), this.button("edit", "Edit this message and go on from there", "edit"),
            this.button("bin", "Delete this turn", "remove"))));
    }

    update() {
        this.text.textContent = this.message.content;
    }

    begin_edit() {
        this.edit("Send", text => this.act("edited", this.message, text));
    }
}

class AnswerView extends MessageView {
    constructor(message, act) {
        super(message, act);
        this.thought = element("div", {class: "thought md"});
        this.thinking_text = element("span");
        this.thinking = element("details", {class: "thinking"}, element("summary", {}, icon("chevron"), this.thinking_text), this.thought);
        this.thought_view = new MarkdownView(this.thought);
        this.waiting = element("div", {class: "waiting"});
        this.text = element("div", {class: "text md"});
        this.text_view = new MarkdownView(this.text);
        this.calls = element("div");
        this.note = element("p", {class: "note"});
        this.error = element("div", {class: "error", role: "alert"});
        this.stats = element("div", {class: "stats"});
        this.go_on = this.button("go", "Continue this answer", "go_on");
        this.bar = element("div", {class: "bar"}, element("div", {class: "actions"}, this.button("copy", "Copy this answer", "copy"),
            this.button("again", "Answer again", "again"), this.go_on, this.button("edit", "Edit this answer", "edit"),
            this.button("bin", "Delete this turn", "remove")), this.stats);
        this.root.append(this.thinking, this.waiting, this.text, this.calls, this.note, this.error, this.bar);
        this.thinking.addEventListener("toggle", () => this.update_thinking());
    }

    begin_edit() {
        this.edit("Save", text => this.act("edited", this.message, text));
    }

    /* A folded thought is not laid out while it grows. */
    update_thinking() {
        const m = this.message, live = Boolean(m.running) && !m.content && !m.calls?.length;
        this.thinking.hidden = !m.reasoning;
        this.thinking.classList.toggle("live", live);
        const took = m.thought !== undefined ? " for " + seconds(m.thought) : "";
        this.thinking_text.textContent = live ? "Thinking…" : "Thought" + took;
        if (this.thinking.open)
            this.thought_view.update(m.reasoning ?? "");
    }

    /* results: messages that answer its calls; last: it is the conversation's last answer; state: what is going on, of a running one. */
    update({results = [], last = false, state = null} = {}) {
        const m = this.message, running = Boolean(m.running);
        this.update_thinking();
        this.waiting.hidden = !running || Boolean(m.reasoning || m.content || m.calls?.length);
        this.waiting.textContent = state ?? "Waiting for the server";
        this.text.hidden = !m.content;
        this.text_view.update(m.content);
        this.update_calls(results, last && !running);
        this.note.textContent = running ? "" : this.note_text();
        this.note.hidden = !this.note.textContent;
        this.update_error(running);
        this.bar.hidden = running;
        this.go_on.hidden = !m.content || Boolean(m.calls?.length) || !last || (m.finish === "stop" && !m.error);
        this.stats.replaceChildren(...(m.stats ? stat_texts(m.stats) : []).map(t => element("span", {}, t)));
        this.root.setAttribute("aria-busy", running);
    }

    note_text() {
        const m = this.message;
        if (m.error)
            return "";
        if (m.finish === "length")
            return m.stats?.full ? "The context is full." : "The limit of tokens is reached.";
        if (m.finish === "stopped")
            return "Stopped.";
        return m.content || m.calls?.length ? "" : "The answer is empty.";
    }

    update_error(running) {
        const e = running ? null : this.message.error;
        this.error.hidden = !e;
        if (!e) {
            this.error.replaceChildren();
        } else if (this.error.firstChild?.textContent !== e.text) {
            const again = text_button("Try again", () => this.act("again", this.message));
            this.error.replaceChildren(element("span", {}, e.text), again);
        }
    }

    update_calls(results, ask) {
        const given = this.message.calls ?? [];
        const shape = JSON.stringify([given, results.map(r => r.content), ask]);
        if (shape === this.calls_shape)
            return;
        this.calls_shape = shape;
        const areas = [];
        const cards = given.map(call => {
            const result = results.find(r => r.call === call.id);
            const card = element("div", {class: "call"}, element("div", {class: "call-head"}, "Calls", element("code", {}, call.name)),
                                 element("pre", {tabindex: "0", "aria-label": "Arguments of " + call.name}, pretty(call.arguments)));
            if (result) {
                card.append(element("div", {class: "result"}, element("span", {}, "Result"), element("pre", {}, result.content)));
            } else if (ask) {
                const area = element("textarea", {rows: 2});
                areas.push([call, area]);
                card.append(element("div", {class: "result"}, element("label", {}, "Result of " + call.name, area)));
            }
            return card;
        });
        const send = () => this.act("results", this.message, areas.map(([call, area]) => ({call: call.id, content: area.value})));
        this.calls.replaceChildren(...cards, ...(areas.length ? [element("div", {class: "row end"}, text_button("Send the results", send, "primary"))] : []));
    }
}

function pretty(json) {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json;
    }
}

export const message_view = (message, act) => (message.role === "user" ? new UserView(message, act) : new AnswerView(message, act));
