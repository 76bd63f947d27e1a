/* What the page keeps: conversations and settings in localStorage, the API key in sessionStorage unless it is to be remembered. One entry
 * per conversation and a list of them, so that a long history is not written again with every word.
 *
 * A conversation: {id, title, named, created, updated, messages}. A message: {id, role: "user" | "assistant" | "tool", content, ...};
 * answers have reasoning, calls [{id, name, arguments}], finish, stats, error; results of tools have call (the id they answer). */

const LIST = "skua.chats", CHAT = "skua.chat.", SETTINGS = "skua.settings", KEY = "skua.key";

export const new_id = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), b => b.toString(36).padStart(2, "0")).join("");

function read(storage, key, otherwise) {
    try {
        return JSON.parse(storage.getItem(key)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

/* Whether it was kept: storage may be full or forbidden. */
function write(storage, key, value) {
    try {
        storage.setItem(key, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

export class Store {
    constructor() {
        this.chats = [];   /* the list, latest first: conversations without their messages */
        this.loaded = new Map();
        this.full = false; /* the last write failed */
        this.read_list();
    }

    read_list() {
        const list = read(localStorage, LIST, []);
        this.chats = Array.isArray(list) ? list.filter(c => c && typeof c.id === "string") : [];
    }

    write_list() {
        this.chats.sort((a, b) => b.updated - a.updated);
        this.full = !write(localStorage, LIST, this.chats);
    }

    /* The whole conversation, always the same object; null if there is none. */
    open(id) {
        if (!this.loaded.has(id)) {
            const chat = read(localStorage, CHAT + id, null);
            if (!chat || !Array.isArray(chat.messages))
                return null;
            for (const m of chat.messages)
                if (m.running) { /* the page was closed in mid-answer */
                    delete m.running;
                    m.error = {kind: "cut", text: "The page was closed before this answer was complete."};
                }
            this.loaded.set(id, chat);
        }
        return this.loaded.get(id);
    }

    create() {
        const now = Date.now(), chat = {id: new_id(), title: "New chat", named: false, created: now, updated: now, messages: []};
        this.loaded.set(chat.id, chat);
        return chat;
    }

    /* touched: it goes to the top of the list. */
    save(chat, touched = false) {
        if (touched)
            chat.updated = Date.now();
        const kept = write(localStorage, CHAT + chat.id, chat);
        const {id, title, named, created, updated} = chat;
        this.chats = [{id, title, named, created, updated}, ...this.chats.filter(c => c.id !== id)];
        this.write_list();
        this.full = this.full || !kept;
    }

    remove(id) {
        this.loaded.delete(id);
        localStorage.removeItem(CHAT + id);
        this.chats = this.chats.filter(c => c.id !== id);
        this.write_list();
    }

    /* Entries whose title or messages have all the words. */
    search(words) {
        const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
        if (!wanted.length)
            return this.chats;
        return this.chats.filter(c => {
            const text = (c.title + "\n" + (this.open(c.id)?.messages ?? []).map(m => m.content).join("\n")).toLowerCase();
            return wanted.every(w => text.includes(w));
        });
    }
}

export const settings = {
    values: Object(read(localStorage, SETTINGS, {})),
    set(name, value) {
        if (value === null || value === "")
            delete this.values[name];
        else
            this.values[name] = value;
        write(localStorage, SETTINGS, this.values);
    },
    clear() {
        this.values = {};
        write(localStorage, SETTINGS, {});
    },
};

export const api_key = {
    get() {
        return read(sessionStorage, KEY, null) ?? read(localStorage, KEY, "");
    },
    remembered() {
        return Boolean(read(localStorage, KEY, ""));
    },
    set(key, remember) {
        sessionStorage.removeItem(KEY);
        localStorage.removeItem(KEY);
        if (key)
            write(remember ? localStorage : sessionStorage, KEY, key);
    },
};

export const theme = {
    get() {
        const choice = localStorage.getItem("skua.theme");
        return choice === "dark" || choice === "light" ? choice : "system";
    },
    set(choice) {
        if (choice === "system")
            localStorage.removeItem("skua.theme");
        else
            localStorage.setItem("skua.theme", choice);
        dispatchEvent(new Event("skua-theme"));
    },
};
