// Reads a document as simplified HTML; see world.js, which it shares a world with.
(webagent) => {
  const { TEXT_NODE, ELEMENT_NODE, SPOTS, bounds, inView, within, pointOf, clean, cut, assignedTo, listeners, isOpaque, isTransparent, holeAt } =
    webagent.shared;
  const ATTRIBUTES = ["title", "value", "type", "placeholder", "data-value", "data-text", "data-testid", "data-label"];
  const CLICKABLE_TAGS = new Set(["INPUT", "TEXTAREA", "SELECT", "BUTTON", "A", "IFRAME", "VIDEO", "OBJECT", "EMBED", "DETAILS"]);
  const CLICKABLE_ROLES = new Set(["button", "tab", "link", "checkbox", "menuitem", "menuitemcheckbox", "menuitemradio", "radio"]);
  const CONTROLS = new Set(["A", "BUTTON"]);
  const FRAME_TAGS = new Set(["IFRAME", "FRAME"]);
  const NOTICES = new Set(["dialog", "download"]);
  const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "LINK", "META"]);
  const PLAIN_NAME = /^[A-Za-z][A-Za-z0-9:_.-]*$/;
  const DEEPEST = 600;
  const MOST_OPTIONS = 500;
  const MOST_COVER_CHECKS = 2000;
  const COVER_CHECK_TIME = 300;

  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const quote = (text) => escape(text).replace(/"/g, "&quot;");
  const isClipped = (element, outer, x, y) => {
    for (let at = element; at !== null && at !== outer; at = at.assignedSlot ?? at.parentElement ?? at.getRootNode().host ?? null) {
      if (getComputedStyle(at).overflow === "visible") continue;
      const r = at.getBoundingClientRect();
      if (x < r.left || x >= r.right || y < r.top || y >= r.bottom) return true;
    }
    return false;
  };

  class Reader {
    constructor(options) {
      this.limit = options.maxBytes;
      this.omitted = new Set(options.omitAttributes);
      this.hidden = new Set(options.hidden.flatMap((selector) => [...document.querySelectorAll(selector)]));
      this.listening = listeners();
      this.lenders = this.findLenders();
      this.labelled = [];
      this.framed = [];
      this.bounds = bounds();
      this.spots = options.centresOnly ? SPOTS.slice(0, 1) : SPOTS;
      this.started = performance.now();
      this.covers = options.centresOnly ? 0 : MOST_COVER_CHECKS;
      this.covered = new Map(); // what the checks found
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
      const top = { visible: true, pointer: false, control: false, lent: { open: false } };
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
      const near = inView(rect, this.bounds);
      let visible = false;
      let pointer = false;
      if (near || rect.width === 0 || rect.height === 0) {
        const style = getComputedStyle(element);
        if (style.display === "none") return nothing;
        pointer = style.cursor === "pointer";
        // An element without a box of its own shows its children in its parent's.
        const shown = near || (style.display === "contents" && above.visible);
        visible = shown && style.visibility === "visible" && element.getAttribute("aria-hidden") !== "true" && !isTransparent(element);
      }
      const here = {
        visible,
        pointer,
        control: above.control || (visible && (CONTROLS.has(tag) || this.hasRole(element))),
        lent: this.lenders.has(element) ? { open: true } : above.lent,
      };
      const inner = this.inner(element, visible, here, depth);
      const borrows = above.lent.open && inner.own !== "" && here.lent === above.lent;
      const label = visible && !inner.clickable && (borrows || this.isClickable(element, above, pointer)) && pointOf(element, this.spots)
        ? this.labelled.push(element) - 1
        : null;
      if (label !== null && borrows) above.lent.open = false;
      const attributes = visible ? this.attributes(element, inner.own) : [];
      const clickable = inner.clickable || label !== null;
      if (visible && !clickable && (inner.own || attributes.length) && this.isCovered(element)) return { html: inner.children, clickable };
      const frame = visible && FRAME_TAGS.has(tag);
      const kept = visible && (label !== null || inner.clickableChildren > 1 || inner.own || attributes.length > 0 || frame);
      if (!kept) return { html: inner.html, clickable };
      // No page can write this character: it stands where the frame's own page will.
      if (frame) inner.html = `\u0001${this.framed.push(element) - 1}\u0001`;
      if (!this.omitted.has("data-bbox")) attributes.push(this.bbox(element));
      const name = PLAIN_NAME.test(tag) ? tag.toLowerCase() : "element";
      const head = [name, ...(label === null ? [] : [`id="${label}"`]), ...attributes].join(" ");
      const body = inner.html.trim();
      const html = body ? `<${head}>${body}</${name}>` : `<${head}/>`;
      this.length += head.length + name.length + 5;
      return { html, clickable };
    }

    // The element's content: own text in place, children in between.
    inner(element, visible, here, depth) {
      const result = { html: "", children: "", own: "", clickable: false, clickableChildren: 0 };
      if (element.tagName === "SELECT") {
        if (visible) result.html = this.options(element);
        return result;
      }
      if (element.tagName === "TEXTAREA") return result;
      let child = (element.shadowRoot ?? element).firstChild;
      // By sibling links, which is much faster than a list on huge pages.
      // What a closed details element holds has boxes, though it is not drawn.
      const only = element.tagName === "DETAILS" && !element.open ? element.querySelector(":scope > summary") : undefined;
      for (; child !== null; child = child.nextSibling)
        if (only === undefined || child === only) this.add(child, result, visible, here, depth);
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
      } else if (child.tagName === "SLOT") {
        // What a slot shows is its parent's.
        if (depth > DEEPEST || getComputedStyle(child).display === "none") return;
        for (const shown of assignedTo(child)) this.add(shown, result, visible, here, depth + 1);
      } else if (child.nodeType === ELEMENT_NODE) {
        const part = this.visit(child, here, depth + 1);
        result.html += part.html;
        result.children += part.html;
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
        // Elements of these names tell of JavaScript dialogs and of downloads; a page's own must not pass for one.
        if (NOTICES.has(tag.toLowerCase()) && (name === "type" || name === "data-status")) continue;
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

    // Whether something opaque lies over the element, or a scrolling part around it does not show it.
    isCovered(element) {
      if (this.covered.has(element)) return this.covered.get(element);
      if (this.covers <= 0 || performance.now() - this.started > COVER_CHECK_TIME) return false;
      this.covers -= 1;
      const covered = this.checkCover(element);
      this.covered.set(element, covered);
      return covered;
    }

    checkCover(element) {
      const root = element.getRootNode();
      const r = [...element.getClientRects()].find((rect) => inView(rect, this.bounds)) ?? element.getBoundingClientRect();
      const b = this.bounds;
      const [left, top] = [Math.max(r.left, b.left), Math.max(r.top, b.top)];
      const [width, height] = [Math.min(r.right, b.right) - left, Math.min(r.bottom, b.bottom) - top];
      return this.spots.every(([across, down]) => {
        const [x, y] = [left + across * width, top + down * height];
        const hole = holeAt(x, y, b);
        if (hole !== undefined) return hole.opaque;
        const hit = root.elementFromPoint(x, y);
        if (hit === null || within(element, hit)) return false;
        return within(hit, element) ? isClipped(element, hit, x, y) : isOpaque(hit, element);
      });
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

  webagent.simplified = (options) => {
    const reader = new Reader(options);
    const { text, truncated } = reader.read();
    reader.started = performance.now(); // the time for the checks that the tree of roles asks for
    return {
      text: options.text || reader.framed.length ? text : "",
      truncated: options.text && truncated,
      labelled: reader.labelled,
      framed: reader.framed,
      isCovered: (element) => reader.isCovered(element),
    };
  };
}
