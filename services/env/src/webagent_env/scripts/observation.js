// Runs in a world of its own beside the page: reads the page as simplified HTML and finds what an action points at.
//
// The page's scripts see none of this; the DOM is all that is shared. Elements are remembered by label in `labelled`,
// never by an attribute written into the page, and a label means the newest observation's element.
(channel) => {
  const ATTRIBUTES = ["title", "value", "type", "placeholder", "data-value", "data-text", "data-testid", "data-label"];
  const CLICKABLE_TAGS = new Set(["INPUT", "TEXTAREA", "SELECT", "BUTTON", "A", "IFRAME", "VIDEO", "OBJECT", "EMBED", "DETAILS"]);
  const CLICKABLE_ROLES = new Set(["button", "tab", "link", "checkbox", "menuitem", "menuitemcheckbox", "menuitemradio", "radio"]);
  const CONTROLS = new Set(["A", "BUTTON"]);
  const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "LINK", "META"]);
  const { TEXT_NODE, ELEMENT_NODE } = Node;
  const LONGEST_TEXT = 500;
  const DEEPEST = 600;
  const MOST_RECTS = 8;
  const MOST_OPTIONS = 500;

  let labelled = [];

  // ---- what the page's own world knows -------------------------------------------------------------------------------
  const signal = (name, detail) =>
    !document.dispatchEvent(new CustomEvent(`${channel}-${name}`, { detail, cancelable: true }));
  const settle = (bound) => new Promise((resolve) => {
    const heard = (event) => {
      document.removeEventListener(`${channel}-settled`, heard);
      resolve(JSON.parse(event.detail));
    };
    document.addEventListener(`${channel}-settled`, heard);
    if (signal("quiet", bound)) return;
    // document.open() took the listeners away: two frames are all that is known.
    document.removeEventListener(`${channel}-settled`, heard);
    requestAnimationFrame(() => requestAnimationFrame(() => resolve({ quiet: document.readyState === "complete", ended: null })));
  });
  // Elements that listen for clicks or presses, and whether for whole clicks.
  const listeners = () => {
    const found = new Map();
    const hear = (event) => found.set(event.composedPath()[0], event.type.endsWith("clickable"));
    const names = [`${channel}-clickable`, `${channel}-pressable`];
    for (const name of names) window.addEventListener(name, hear, true);
    signal("mark");
    for (const name of names) window.removeEventListener(name, hear, true);
    return found;
  };

  // ---- geometry ------------------------------------------------------------------------------------------------------
  const inView = (r, width = innerWidth, height = innerHeight) =>
    r.top < height && r.bottom > 0 && r.left < width && r.right > 0 && r.width > 0 && r.height > 0;
  // The centre of the first part of the element that is in view and on top, or null.
  const pointOf = (element) => {
    const root = element.getRootNode();
    const rects = element.getClientRects();
    for (let i = 0; i < rects.length && i < MOST_RECTS; i += 1) {
      const left = Math.max(rects[i].left, 0);
      const top = Math.max(rects[i].top, 0);
      const right = Math.min(rects[i].right, innerWidth);
      const bottom = Math.min(rects[i].bottom, innerHeight);
      if (right - left < 1 || bottom - top < 1) continue;
      const x = (left + right) / 2;
      const y = (top + bottom) / 2;
      const hit = root.elementFromPoint(x, y);
      if (hit !== null && (hit === element || element.contains(hit))) return { x, y };
    }
    return null;
  };

  // ---- simplified HTML -----------------------------------------------------------------------------------------------
  const clean = (text) => text.slice(0, 4 * LONGEST_TEXT).replace(/[\s\u0000-\u001f\u007f]+/g, " ");
  const cut = (text) => (text.length > LONGEST_TEXT ? text.slice(0, LONGEST_TEXT).replace(/[\ud800-\udbff]$/, "") : text);
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const quote = (text) => escape(text).replace(/"/g, "&quot;");
  const assignedTo = (slot) => {
    const assigned = slot.assignedNodes();
    return assigned.length ? assigned : slot.childNodes;
  };

  class Reader {
    constructor(options) {
      this.limit = options.maxBytes;
      this.omitted = new Set(options.omitAttributes);
      this.hidden = new Set(options.hidden.flatMap((selector) => [...document.querySelectorAll(selector)]));
      this.listening = listeners();
      this.lenders = this.findLenders();
      this.labelled = [];
      this.width = innerWidth;
      this.height = innerHeight;
      this.length = 0; // what has been written, and whether something was not
      this.stopped = false;
    }

    // Elements that react to clicks and hold others that do. Only the innermost are numbered, so such an element lends
    // its reaction to its first text: a row with a delete button can still be opened.
    findLenders() {
      const lenders = new Set();
      for (const [element, whole] of this.listening) {
        if (whole && element.querySelector("a,button,input,select,textarea") !== null) lenders.add(element);
        for (let above = element.parentElement; above !== null; above = above.parentElement)
          if (this.listening.get(above)) lenders.add(above);
      }
      return lenders;
    }

    read() {
      const top = { pointer: false, control: false, lent: { open: false } };
      let text = document.body ? this.visit(document.body, top, 0).html.trim() : "";
      const bytes = new TextEncoder().encode(text);
      if (bytes.length <= this.limit && !this.stopped) return { text, truncated: false };
      const marker = "\n(page cut here: it is longer than an observation may be)";
      const room = this.limit - marker.length;
      text = new TextDecoder().decode(bytes.subarray(0, room)).replace(/\ufffd+$/, "");
      const open = text.lastIndexOf("<");
      if (open > text.lastIndexOf(">")) text = text.slice(0, open);
      else text = text.replace(/&[a-z]*$/, "");
      return { text: text + marker, truncated: true };
    }

    // Returns the element's HTML, or its children's if it is elided, and whether something in it is labelled. `above`
    // is what the ancestors are: of pointer cursor, a control, lending a click that no text has taken yet.
    visit(element, above, depth) {
      const nothing = { html: "", clickable: false };
      const tag = element.tagName;
      if (this.length > this.limit) {
        this.stopped = true;
        return nothing;
      }
      if (depth > DEEPEST || SKIPPED_TAGS.has(tag) || this.hidden.has(element)) return nothing;
      if (tag === "INPUT" && element.type === "hidden") return nothing;
      const rect = element.getBoundingClientRect();
      const near = inView(rect, this.width, this.height);
      let visible = false;
      let pointer = false;
      if (near || rect.width === 0 || rect.height === 0) {
        const style = getComputedStyle(element);
        if (style.display === "none") return nothing;
        pointer = style.cursor === "pointer";
        visible = near && style.visibility === "visible" && element.getAttribute("aria-hidden") !== "true";
      }
      const here = {
        pointer,
        control: above.control || (visible && (CONTROLS.has(tag) || this.hasRole(element))),
        lent: this.lenders.has(element) ? { open: true } : above.lent,
      };
      const inner = this.inner(element, visible, here, depth);
      const borrows = above.lent.open && inner.own !== "" && here.lent === above.lent;
      const label = visible && !inner.clickable && (borrows || this.isClickable(element, above, pointer)) && pointOf(element)
        ? this.labelled.push(element) - 1
        : null;
      if (label !== null && borrows) above.lent.open = false;
      const attributes = visible ? this.attributes(element, inner.own) : [];
      const kept = visible && (label !== null || inner.clickableChildren > 1 || inner.own || attributes.length > 0);
      const clickable = inner.clickable || label !== null;
      if (!kept) return { html: inner.html, clickable };
      if (!this.omitted.has("data-bbox")) attributes.push(this.bbox(element));
      const name = tag.toLowerCase();
      const head = [name, ...(label === null ? [] : [`id="${label}"`]), ...attributes].join(" ");
      const body = inner.html.trim();
      const html = body ? `<${head}>${body}</${name}>` : `<${head}/>`;
      this.length += head.length + name.length + 5;
      return { html, clickable };
    }

    // The element's content: own text in place, children in between.
    inner(element, visible, here, depth) {
      const result = { html: "", own: "", clickable: false, clickableChildren: 0 };
      if (element.tagName === "SELECT") {
        if (visible) result.html = this.options(element);
        return result;
      }
      if (element.tagName === "TEXTAREA") return result;
      if (element.tagName === "SLOT") {
        for (const child of assignedTo(element)) this.add(child, result, visible, here, depth);
      } else {
        let child = (element.shadowRoot ?? element).firstChild;
        // By sibling links, which is much faster than a list on huge pages.
        for (; child !== null; child = child.nextSibling) this.add(child, result, visible, here, depth);
      }
      result.clickable = result.clickableChildren > 0;
      result.own = result.own.trim();
      return result;
    }

    add(child, result, visible, here, depth) {
      if (child.nodeType === TEXT_NODE) {
        if (!visible) return;
        const text = cut(clean(child.data));
        if (text === "" || text === " ") return;
        result.own += text;
        result.html += escape(text);
        this.length += text.length;
      } else if (child.nodeType === ELEMENT_NODE) {
        const part = this.visit(child, here, depth + 1);
        result.html += part.html;
        if (part.clickable) result.clickableChildren += 1;
      }
    }

    options(select) {
      let html = "";
      for (const option of [...select.options].slice(0, MOST_OPTIONS)) {
        const text = cut(clean(option.text).trim());
        const value = option.getAttribute("value");
        const parts = ["option"];
        if (value && value !== text && !this.omitted.has("value")) parts.push(`value="${quote(cut(clean(value)))}"`);
        if (option.selected && !this.omitted.has("data-status")) parts.push('data-status="selected"');
        html += `<${parts.join(" ")}>${escape(text)}</option>`;
      }
      this.length += html.length;
      return html;
    }

    // A value is written once: not again under another name, and not where the element's text says it already.
    attributes(element, own) {
      const tag = element.tagName;
      const live = {};
      if (tag === "INPUT" && (element.type === "checkbox" || element.type === "radio"))
        live["data-status"] = element.checked ? "checked" : "not-checked";
      else if (tag === "INPUT" || tag === "TEXTAREA") live["data-value"] = element.value;
      const said = new Set(["", own]);
      const written = [];
      for (const name of [...ATTRIBUTES, "data-status"]) {
        if (this.omitted.has(name)) continue;
        if (name === "value" && tag === "INPUT" && live["data-value"] !== undefined) continue;
        const raw = live[name] ?? element.getAttribute(name);
        if (raw === null || raw === undefined) continue;
        const value = cut(clean(String(raw)).trim());
        if (said.has(value)) continue;
        said.add(value);
        written.push(`${name}="${quote(value)}"`);
      }
      return written;
    }

    bbox(element) {
      const r = element.getClientRects()[0] ?? element.getBoundingClientRect();
      return `data-bbox="${[r.left, r.top, r.width, r.height].map(Math.round).join(",")}"`;
    }

    hasRole(element) {
      return CLICKABLE_ROLES.has((element.getAttribute("role") ?? "").toLowerCase());
    }

    isClickable(element, above, pointer) {
      const tag = element.tagName;
      if (tag === "BODY" || tag === "HTML" || element.disabled === true) return false;
      if (CLICKABLE_TAGS.has(tag) || this.listening.has(element) || element.hasAttribute("onclick") || this.hasRole(element)) return true;
      // What only looks clickable within a control is a part of it.
      if (above.control) return false;
      return (pointer && !above.pointer)
        || (tag === "IMG" && element.hasAttribute("usemap"))
        || (element.isContentEditable && !element.parentElement?.isContentEditable)
        || (element.getAttribute("jsaction") ?? "").includes("click")
        || (tag === "LABEL" && element.control !== null && !element.control.disabled)
        || (typeof element.className === "string" && element.className.toLowerCase().includes("button"))
        || (element.hasAttribute("tabindex") && element.tabIndex >= 0);
    }
  }

  // ---- what actions point at -----------------------------------------------------------------------------------------
  const UNTYPABLE = new Set(["button", "checkbox", "color", "file", "hidden", "image", "radio", "range", "reset", "submit"]);
  const SET_WHOLE = new Set(["date", "datetime-local", "month", "time", "week"]);
  const failed = (message) => ({ failed: message });
  const describe = (element) => (element === null ? "nothing" : `<${element.tagName.toLowerCase()}>`);
  const fire = (element, ...types) => {
    for (const type of types) element.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
  };
  const isEditable = (element) => element.isContentEditable || element.tagName === "TEXTAREA"
    || (element.tagName === "INPUT" && !UNTYPABLE.has(element.type));

  const api = {
    // An action begins. With a label: where to point at its element, or why that cannot be.
    begin(label, typing) {
      signal("begin");
      if (label === null) return { x: innerWidth / 2, y: innerHeight / 2, height: innerHeight };
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return failed("it is gone from the page");
      if (element.matches(":disabled")) return failed("it is disabled");
      if (typing && !isEditable(element)) return failed(`text cannot be typed into ${describe(element)}`);
      if (typing && element.readOnly === true) return failed("it is read-only");
      let point = pointOf(element);
      if (point === null) {
        element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
        point = pointOf(element);
      }
      if (point !== null) return { ...point, whole: element.tagName === "INPUT" && SET_WHOLE.has(element.type) ? element.type : null };
      const r = element.getBoundingClientRect();
      if (!inView(r)) return failed("it is not visible");
      return failed(`it is covered by ${describe(document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2))}`);
    },

    // Selects all text of the element that has just been clicked, which must have the focus by now.
    selectAll(label) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return failed("it is gone from the page");
      const focused = element.getRootNode().activeElement;
      if (focused !== element && !element.contains(focused)) return failed("it does not take the focus");
      if (element.isContentEditable) {
        getSelection().selectAllChildren(element);
        return { empty: element.textContent === "" };
      }
      element.select();
      return { empty: element.value === "" };
    },

    // Sets a date or time, whose fields take no plain typing.
    setWhole(label, value) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return failed("it is gone from the page");
      element.focus();
      element.value = value;
      fire(element, "input", "change");
      return value !== "" && element.value === "" ? failed(`"${value}" is no ${element.type}`) : {};
    },

    // Picks an option by its text: equal first, else the first that contains it, letter case ignored.
    pick(label, wanted) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return failed("it is gone from the page");
      if (element.tagName !== "SELECT") return failed(`${describe(element)} has no options; click it instead`);
      if (element.matches(":disabled")) return failed("it is disabled");
      const plain = (text) => text.replace(/\s+/g, " ").trim().toLowerCase();
      const options = [...element.options].filter((option) => !option.disabled && !option.parentElement.disabled);
      const option = options.find((o) => plain(o.text) === plain(wanted)) ?? options.find((o) => plain(o.text).includes(plain(wanted)));
      if (option === undefined) return { missing: true };
      element.focus();
      if (element.multiple ? !option.selected : element.selectedIndex !== option.index) {
        if (!element.multiple) element.selectedIndex = option.index;
        option.selected = true;
        fire(element, "input", "change");
      }
      return {};
    },

    // For probes: what the page shows, read where its scripts cannot change the answer.
    texts(selector) {
      return [...document.querySelectorAll(selector)].map((element) => element.textContent);
    },
    html() {
      return document.documentElement.outerHTML;
    },

    // What a tab keeps over navigations.
    wipe() {
      sessionStorage.clear();
      window.name = "";
    },

    observe(options) {
      const reader = new Reader(options);
      const { text, truncated } = options.text ? reader.read() : { text: "", truncated: false };
      labelled = reader.labelled;
      return { text, truncated, labels: labelled.length, url: location.href, title: document.title };
    },

    // Waits until the page is quiet and reads it.
    async finish(bound, options) {
      const started = performance.now();
      const state = await settle(bound);
      const settled = performance.now();
      const page = options === null ? {} : api.observe(options);
      return { ...state, ...page, closed: window.closed, settleMs: settled - started, observeMs: performance.now() - settled };
    },
  };
  globalThis.webagent = api;
}
