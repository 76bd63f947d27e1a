/* A subset of Markdown as DOM nodes: headings, paragraphs, lists, quotes, tables, rules, code blocks; code, bold, italic, struck text and
 * links. Text enters the page as text nodes only, so nothing that a model writes can become markup; links go to http, https and mailto.
 * Pictures become links: the page asks nobody but its server for anything. */

const MAX_DEPTH = 12;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$|^ {0,3}\|[ \t]*:?-+:?[ \t]*\|[ \t]*$/;

export function element(name, attributes = {}, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(attributes))
        if (value !== undefined && value !== null && value !== false)
            e.setAttribute(key, value === true ? "" : value);
    e.append(...children.filter(c => c !== undefined && c !== null));
    return e;
}

/* ---- blocks ---- */

const begins_block = line => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

const indent_of = line => line.length - line.trimStart().length;

function fence_end(lines, i, mark) {
    for (i++; i < lines.length; i++) {
        const m = FENCE.exec(lines[i]);
        if (m && m[1][0] === mark[0] && m[1].length >= mark.length && !m[2].trim())
            return i + 1;
    }
    return lines.length;
}

/* A list goes on over blank lines while what follows is an item or is indented. */
function list_end(lines, i) {
    const base = indent_of(lines[i]);
    for (i++; i < lines.length; i++) {
        if (lines[i].trim()) {
            const item = ITEM.exec(lines[i]);
            if (indent_of(lines[i]) > base || (item && item[1].length >= base && !RULE.test(lines[i])))
                continue;
            if (!lines[i - 1].trim() || begins_block(lines[i]))
                break;
        }
    }
    while (!lines[i - 1].trim())
        i--;
    return i;
}

function block_end(lines, i) {
    const line = lines[i], fence = FENCE.exec(line);
    if (fence)
        return fence_end(lines, i, fence[1]);
    if (HEADING.test(line) || RULE.test(line))
        return i + 1;
    if (ITEM.test(line))
        return list_end(lines, i);
    const quote = QUOTE.test(line);
    for (i++; i < lines.length && lines[i].trim(); i++)
        if (quote ? !QUOTE.test(lines[i]) && begins_block(lines[i]) : begins_block(lines[i]))
            break;
    return i;
}

/* The text in pieces, one block each; joined they are the text without blank lines. */
export function split_blocks(text) {
    const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), blocks = [];
    for (let i = 0; i < lines.length;) {
        if (!lines[i].trim()) {
            i++;
            continue;
        }
        const end = block_end(lines, i);
        blocks.push(lines.slice(i, end).join("\n"));
        i = end;
    }
    return blocks;
}

function code_block(lines) {
    const fence = FENCE.exec(lines[0]);
    const last = lines.length > 1 ? FENCE.exec(lines[lines.length - 1]) : null;
    const closed = last && last[1][0] === fence[1][0] && last[1].length >= fence[1].length && !last[2].trim();
    const language = fence[2].trim().split(/\s/)[0];
    const code = element("code", {}, lines.slice(1, closed ? -1 : undefined).join("\n"));
    const copy = element("button", {type: "button", class: "copy-code", "aria-label": "Copy this code"}, "Copy");
    return element("div", {class: "code"}, element("div", {class: "code-head"}, element("span", {}, language || "text"), copy),
                   element("pre", {tabindex: "0", "aria-label": language ? language + " code" : "code"}, code));
}

function list(lines, depth) {
    const first = ITEM.exec(lines[0]), base = first[1].length, ordered = /\d/.test(first[2]);
    const out = element(ordered ? "ol" : "ul", ordered && parseInt(first[2], 10) !== 1 ? {start: parseInt(first[2], 10)} : {});
    for (let i = 0; i < lines.length;) {
        const m = ITEM.exec(lines[i]), width = m ? m[0].length : 0, inside = [lines[i].slice(width)];
        let loose = false;
        for (i++; i < lines.length; i++) {
            const next = ITEM.exec(lines[i]);
            if (next && next[1].length <= base + 1)
                break;
            loose = loose || !lines[i].trim();
            inside.push(lines[i].slice(Math.min(indent_of(lines[i]), width)));
        }
        const item = element("li"), text = inside.join("\n");
        const task = /^\[([ xX])\] /.exec(text);
        if (task)
            item.append(element("input", {type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "task"}), " ");
        item.append(...blocks(task ? text.slice(4) : text, depth + 1, !loose));
        out.append(item);
    }
    return out;
}

const cells = line => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map(c => c.trim().replace(/\\\|/g, "|"));

function table(lines, depth) {
    const align = cells(lines[1]).map(c => (/:$/.test(c) ? (/^:/.test(c) ? "center" : "end") : null));
    const row = (line, name) => {
        const r = element("tr"), given = cells(line);
        for (let i = 0; i < align.length; i++)
            r.append(element(name, {class: align[i] && "align-" + align[i]}, ...inline(given[i] ?? "", depth + 1)));
        return r;
    };
    return element("div", {class: "table", tabindex: "0"},
                   element("table", {}, element("thead", {}, row(lines[0], "th")), element("tbody", {}, ...lines.slice(2).map(l => row(l, "td")))));
}

function block(source, depth, tight) {
    const lines = source.split("\n"), heading = HEADING.exec(lines[0]);
    if (depth > MAX_DEPTH)
        return [element("p", {}, source)];
    if (FENCE.test(lines[0]))
        return [code_block(lines)];
    if (heading)
        return [element("h" + Math.min(6, heading[1].length + 2), {}, ...inline(heading[2], depth))];
    if (RULE.test(lines[0]))
        return [element("hr")];
    if (ITEM.test(lines[0]))
        return [list(lines, depth)];
    if (QUOTE.test(lines[0]))
        return [element("blockquote", {}, ...blocks(lines.map(l => l.replace(QUOTE, "")).join("\n"), depth + 1, false))];
    if (lines.length > 1 && lines[0].includes("|") && TABLE_RULE.test(lines[1]))
        return [table(lines, depth)];
    const text = inline(lines.map(l => l.trimStart()).join("\n").trimEnd(), depth);
    return tight ? text : [element("p", {}, ...text)];
}

function blocks(text, depth, tight) {
    return split_blocks(text).flatMap(b => block(b, depth, tight));
}

/* ---- inside a line ---- */

function safe_link(target) {
    try {
        const url = new URL(target);
        return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function anchor(target, children) {
    return element("a", {href: target, target: "_blank", rel: "noopener noreferrer"}, ...children);
}

/* Each of these looks at the text at position i, where a character that it is for stands: [nodes, end] or null. missing: what has no end
   behind i, so that text full of beginnings is not searched again and again. */

function code_span(text, i) {
    const mark = /^`+/.exec(text.slice(i, i + 64))[0];
    for (let at = i + mark.length; (at = text.indexOf(mark, at)) >= 0;) {
        let end = at;
        while (text[end] === "`")
            end++;
        if (end - at === mark.length) {
            const inner = text.slice(i + mark.length, at).replace(/\n/g, " ");
            return [[element("code", {}, /^ .*[^ ].* $/.test(inner) ? inner.slice(1, -1) : inner)], end];
        }
        at = end;
    }
    return null;
}

const is_word = c => c !== undefined && /[\p{L}\p{N}_]/u.test(c);

function emphasis(text, i, depth, missing) {
    const c = text[i], mark = text[i + 1] === c ? c + c : c, name = mark === "~~" ? "del" : mark.length === 2 ? "strong" : "em";
    const from = i + mark.length;
    if (mark === "~" || missing.has(mark) || !text[from] || /\s/.test(text[from]) || (c === "_" && is_word(text[i - 1])))
        return null;
    for (let at = from; (at = text.indexOf(mark, at)) >= 0; at++) {
        const skip = mark.length === 1 && (text[at + 1] === c || text[at - 1] === c);
        if (at === from || skip || /\s/.test(text[at - 1]) || text[at - 1] === "\\" || (c === "_" && is_word(text[at + mark.length])))
            continue;
        const end = mark.length === 2 && text[at + 2] === c ? at + 1 : at;
        return [[element(name, {}, ...inline(text.slice(from, end), depth + 1))], end + mark.length];
    }
    missing.add(mark);
    return null;
}

function link(text, i, depth) {
    const m = /^!?\[((?:[^[\]\\]|\\.|\[[^\]]{0,200}\]){0,1000})\]\(<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\)/.exec(text.slice(i, i + 4096));
    const target = m && safe_link(m[2]);
    return target ? [[anchor(target, inline(m[1] || m[2], depth + 1, true))], i + m[0].length] : null;
}

function bare_link(text, i) {
    if (is_word(text[i - 1]))
        return null;
    const m = /^https?:\/\/[^\s<>"'`\\]+[^\s<>"'`\\.,;:!?)\]}*_]/.exec(text.slice(i, i + 2048));
    const target = m && safe_link(m[0]);
    return target ? [[anchor(target, [m[0]])], i + m[0].length] : null;
}

function inline(text, depth, in_link = false) {
    const out = [], missing = new Set();
    let plain = "";
    const flush = () => {
        if (plain)
            out.push(document.createTextNode(plain));
        plain = "";
    };
    for (let i = 0; i < text.length;) {
        const c = text[i];
        let found = null;
        if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
            plain += text[i + 1];
            i += 2;
            continue;
        }
        if (c === "\n")
            found = [[element("br")], i + 1];
        else if (depth > MAX_DEPTH)
            found = null;
        else if (c === "`")
            found = code_span(text, i) ?? [[/^`+/.exec(text.slice(i))[0]], i + /^`+/.exec(text.slice(i))[0].length];
        else if (c === "*" || c === "_" || c === "~")
            found = emphasis(text, i, depth, missing);
        else if (!in_link && (c === "[" || (c === "!" && text[i + 1] === "[")))
            found = link(text, i, depth);
        else if (!in_link && c === "h")
            found = bare_link(text, i);
        if (found) {
            flush();
            out.push(...found[0]);
            i = found[1];
        } else {
            plain += c;
            i++;
        }
    }
    flush();
    return out;
}

/* Shows a text that grows in an element: blocks that did not change keep their nodes, and with them selection and scroll position. */
export class MarkdownView {
    constructor(root) {
        this.root = root;
        this.shown = []; /* {source, nodes} */
    }

    update(text) {
        const sources = split_blocks(text);
        let same = 0;
        while (same < sources.length && same < this.shown.length && sources[same] === this.shown[same].source)
            same++;
        for (const old of this.shown.splice(same))
            old.nodes.forEach(n => n.remove());
        for (const source of sources.slice(same)) {
            const nodes = block(source, 0, false);
            this.root.append(...nodes);
            this.shown.push({source, nodes});
        }
    }
}
