/* The list of conversations: open, rename, delete, search. */
import {element} from "./markdown.js";
import {icon_button} from "./messages.js";

const $ = id => document.getElementById(id);
const DAY = 86400e3;

function age(time) {
    const midnight = new Date().setHours(0, 0, 0, 0);
    return time >= midnight ? "Today" : time >= midnight - DAY ? "Yesterday" : time >= midnight - 7 * DAY ? "Last seven days" : "Older";
}

export class ChatList {
    /* on: {open(id), rename(id, title), remove(id)}; running(id): is an answer on its way? */
    constructor(store, on, running) {
        Object.assign(this, {store, on, running});
        this.renaming = null;
        $("search").addEventListener("input", () => this.show(this.current));
        $("search").addEventListener("keydown", e => {
            if (e.key === "Escape" && $("search").value) {
                e.stopPropagation();
                $("search").value = "";
                this.show(this.current);
            }
        });
    }

    show(current) {
        this.current = current;
        if (this.renaming)
            return;
        const words = $("search").value, found = this.store.search(words), out = [];
        let group = null;
        for (const chat of found) {
            if (!words && age(chat.updated) !== group) {
                group = age(chat.updated);
                out.push(element("li", {class: "group"}, group));
            }
            out.push(this.entry(chat));
        }
        const focus = document.activeElement?.closest?.("#chats [data-id]")?.dataset.id, at = $("chats").scrollTop;
        $("chats").replaceChildren(...out);
        $("chats").scrollTop = at;
        $("no-chats").hidden = found.length > 0;
        $("no-chats").textContent = words ? "Nothing found." : "Conversations stay in this browser.";
        if (focus)
            $("chats").querySelector(`[data-id="${CSS.escape(focus)}"] .open`)?.focus();
    }

    entry(chat) {
        const current = chat.id === this.current;
        const open = element("button", {type: "button", class: "open", title: chat.title, "aria-current": current && "true"}, chat.title);
        const row = element("li", {class: current ? "chat current" : "chat", "data-id": chat.id},
                            this.running(chat.id) ? element("span", {class: "busy", title: "An answer is on its way"}) : null, open,
                            element("span", {class: "tools"}, icon_button("edit", "Rename " + chat.title, () => this.rename(row, chat)),
                                    icon_button("bin", "Delete " + chat.title, () => this.on.remove(chat.id))));
        open.addEventListener("click", () => this.on.open(chat.id));
        open.addEventListener("dblclick", () => this.rename(row, chat));
        return row;
    }

    rename(row, chat) {
        const field = element("input", {"aria-label": "Title of the conversation", maxlength: "200"});
        const end = keep => {
            if (this.renaming !== field)
                return;
            this.renaming = null;
            if (keep && field.value.trim())
                this.on.rename(chat.id, field.value.trim());
            this.show(this.current);
        };
        this.renaming = field;
        field.value = chat.title;
        row.replaceChildren(field);
        field.addEventListener("keydown", e => {
            if (e.key === "Enter" && !e.isComposing)
                end(true);
            else if (e.key === "Escape")
                end(false);
            e.stopPropagation();
        });
        field.addEventListener("blur", () => end(true));
        field.focus();
        field.select();
    }
}
