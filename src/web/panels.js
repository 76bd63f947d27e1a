/* Settings, facts about the model, API key, colours. */
import {api_key, settings, theme} from "./store.js";
import {element} from "./markdown.js";
import {count, icon} from "./messages.js";

const $ = id => document.getElementById(id);
const FIELDS = () => [...$("settings-form").elements].filter(e => e.name);

/* ---- settings ---- */

function take_field(field) {
    let problem = "";
    if (field.name === "tools" && field.value.trim()) {
        try {
            if (!Array.isArray(JSON.parse(field.value)))
                problem = "Tools: expected a JSON array.";
        } catch (e) {
            problem = "Tools: " + e.message + ".";
        }
    } else if (!field.checkValidity()) {
        problem = field.closest("label").firstChild.textContent + ": " + field.validationMessage;
    }
    field.setAttribute("aria-invalid", Boolean(problem));
    $("settings-error").textContent = problem;
    $("settings-error").hidden = !problem;
    if (!problem)
        settings.set(field.name, field.value.trim() === "" ? null : field.type === "number" ? field.valueAsNumber : field.value);
}

function show_settings() {
    for (const f of FIELDS()) {
        f.value = settings.values[f.name] ?? "";
        f.removeAttribute("aria-invalid");
    }
    $("settings-error").hidden = true;
    $("key").value = api_key.get();
    $("remember").checked = api_key.remembered();
}

/* The server's values, in grey where nothing is set here. */
export function show_defaults(props, model) {
    const d = props?.default_generation_settings ?? {};
    for (const f of FIELDS())
        if (f.type === "number" && typeof d[f.name] === "number")
            f.placeholder = String(+d[f.name].toPrecision(6));
    const drafts = model?.meta?.draft;
    $("speculation-hint").textContent = drafts === null ? "This server was started without a drafter." : "It changes the speed only, never the answer.";
    const thinks = model?.capabilities?.thinking;
    for (const name of ["thinking", "thinking_budget"])
        $("settings-form").elements[name].disabled = thinks === false;
}

/* on_key is called when the key has changed. */
export function set_up_settings(on_key) {
    $("open-settings").addEventListener("click", () => {
        show_settings();
        $("settings").showModal();
    });
    $("settings-form").addEventListener("input", e => e.target.name && take_field(e.target));
    const take_key = () => {
        api_key.set($("key").value.trim(), $("remember").checked);
        on_key();
    };
    $("key").addEventListener("change", take_key);
    $("remember").addEventListener("change", take_key);
    $("reset").addEventListener("click", () => {
        settings.clear();
        show_settings();
    });
    $("settings-form").addEventListener("keydown", e => {
        if (e.key === "Enter" && e.target.tagName === "INPUT")
            e.preventDefault(); /* it would close the panel */
    });
    for (const d of document.querySelectorAll("dialog"))
        d.addEventListener("click", e => e.target === d && d.close());
}

/* ---- API key ---- */

let waiting = null;

/* Ask for a key; true when there is a new one. Once at a time. */
export function ask_key(text) {
    $("ask-key-text").textContent = text;
    waiting ??= new Promise(done => {
        const dialog = $("ask-key");
        let given = false;
        $("new-key").value = "";
        $("key-form").onsubmit = () => {
            api_key.set($("new-key").value.trim(), $("new-remember").checked);
            given = true;
        };
        $("key-cancel").onclick = () => dialog.close();
        dialog.onclose = () => {
            waiting = null;
            done(given);
        };
        dialog.showModal();
    });
    return waiting;
}

/* ---- colours ---- */

const THEMES = {system: ["light", "Colours: as the system has them. Switch to light"], light: ["dark", "Colours: light. Switch to dark"],
                dark: ["system", "Colours: dark. Switch to the system's"]};

export function set_up_theme() {
    const button = $("theme");
    const show = () => {
        const label = THEMES[theme.get()][1];
        button.replaceChildren(icon(theme.get()));
        button.setAttribute("aria-label", label);
        button.title = label;
    };
    button.addEventListener("click", () => {
        theme.set(THEMES[theme.get()][0]);
        show();
    });
    show();
}

/* ---- facts ---- */

const bytes = n => (n >= 1 << 30 ? (n / (1 << 30)).toFixed(2) + " GiB" : (n / (1 << 20)).toFixed(1) + " MiB");
const amount = n => (n >= 1e9 ? (n / 1e9).toFixed(2) + " billion" : n >= 1e6 ? (n / 1e6).toFixed(1) + " million" : count(n));

function facts_of(model, props) {
    const meta = model?.meta ?? {}, p = props ?? {}, list = [];
    const add = (name, value) => value !== undefined && value !== null && value !== "" && list.push([name, String(value)]);
    add("Name", model?.id);
    add("Also called", model?.aliases?.join(", "));
    add("Architecture", meta.architecture);
    add("Parameters", meta.n_params && amount(meta.n_params));
    add("Weights", [meta.quantization, meta.size_bytes && bytes(meta.size_bytes)].filter(Boolean).join(", "));
    add("Vocabulary", meta.vocab_size && count(meta.vocab_size) + " tokens");
    add("Context", meta.n_ctx && count(meta.n_ctx) + " tokens" + (meta.n_ctx_train && meta.n_ctx_train !== meta.n_ctx ? ` (trained: ${count(meta.n_ctx_train)})` : ""));
    add("Thinking", model?.capabilities && (model.capabilities.thinking ? "yes" : "no"));
    add("Tools", model?.capabilities && (model.capabilities.tools ? "yes" : "no"));
    add("Speculation", meta.draft ? [meta.draft.type, meta.draft.verdict].filter(Boolean).join(", ") : model && "no drafter");
    if (props) {
        list.push(["", "Server"]);
        add("Version", p.build);
        add("Backend", [p.backend, p.devices?.[0]?.kernels].filter(Boolean).join(", "));
        add("Numeric mode", p.numeric_mode);
        add("Answers at a time", p.parallel);
        add("Memory for earlier prompts", p.cache?.ram_budget > 0 ? bytes(p.cache.ram_budget) : p.cache && "none");
        add("Files for earlier prompts", p.cache && (p.cache.disk_dir_set ? "yes" : "no"));
    }
    return list;
}

export function set_up_info(get) {
    $("model").addEventListener("click", () => {
        const {model, props} = get(), out = [];
        for (const [name, value] of facts_of(model, props))
            out.push(...(name ? [element("dt", {}, name), element("dd", {}, value)] : [element("dt", {class: "head"}, value)]));
        $("facts").replaceChildren(...(out.length ? out : [element("dt", {class: "head"}, "The server does not answer.")]));
        $("info").showModal();
    });
}
