// Runs in a world of its own beside the page, in each frame that is read: what the other scripts there share, and what
// actions point at.
//
// The page's scripts see none of this; the DOM is all that is shared. Elements are remembered by label in `labelled`,
// never by an attribute written into the page, and a label means the element of the newest observation that has
// numbers. `framed` are that observation's frames, whose own documents have a world like this one each.
(channel) => {
  const { TEXT_NODE, ELEMENT_NODE } = Node;
  const LONGEST_TEXT = 500;
  const MOST_RECTS = 8;
  const GRID = 6;
  const LATEST_REPLY = 500; // milliseconds past the bound on settling
  const PICTURES = new Set(["IMG", "VIDEO", "CANVAS", "IFRAME", "OBJECT", "EMBED"]);
  // Where an element may be pointed at, as shares of its width and height; its centre first.
  const SPOTS = [[0.5, 0.5], [0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75], [0.5, 0.1], [0.5, 0.9], [0.1, 0.5], [0.9, 0.5]];

  let labelled = [];
  let framed = [];
  // What can be seen of this document: all of its viewport, or what the pages around it leave of a frame.
  let view = null;

  // ---- what the page's own world knows -------------------------------------------------------------------------------
  const signal = (name, detail) =>
    !document.dispatchEvent(new CustomEvent(`${channel}-${name}`, { detail, cancelable: true }));
  const settle = (bound, inFrame) => new Promise((resolve) => {
    const heard = (event) => {
      document.removeEventListener(`${channel}-settled`, heard);
      clearTimeout(unheard);
      resolve(JSON.parse(event.detail));
    };
    // This world's own clock, which the page cannot touch: document.open() may yet take the listeners away.
    const unheard = setTimeout(() => resolve({ quiet: false, ended: null }), bound + LATEST_REPLY);
    document.addEventListener(`${channel}-settled`, heard);
    if (signal("quiet", bound)) return;
    // document.open() took the listeners away: two frames are all that is known.
    document.removeEventListener(`${channel}-settled`, heard);
    clearTimeout(unheard);
    const answer = () => resolve({ quiet: document.readyState === "complete", ended: null });
    // In a frame whose sandbox forbids scripts, no callback would ever run.
    if (inFrame) answer();
    else requestAnimationFrame(() => requestAnimationFrame(answer));
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
  const bounds = () => view ?? { left: 0, top: 0, right: innerWidth, bottom: innerHeight, holes: [] };
  const inView = (r, b = bounds()) =>
    r.top < b.bottom && r.bottom > b.top && r.left < b.right && r.right > b.left && r.width > 0 && r.height > 0;
  // Whether the node is the element, or in it as it is drawn: slotted nodes are in the slot's ancestors.
  const within = (element, node) => {
    for (let at = node; at !== null; at = at.assignedSlot ?? at.parentNode ?? at.host ?? null) if (at === element) return true;
    return false;
  };
  const hits = (element, root, x, y) => {
    const hit = root.elementFromPoint(x, y);
    if (hit === null) return false;
    // A text in a slot counts as its host's.
    return hit === element || within(element, hit) || (hit === root.host && root.elementsFromPoint(x, y).includes(element));
  };
  const isOpaque = (hit, element) => {
    for (let at = hit; at !== null && !within(at, element); at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.opacity !== "1") return false;
      if (PICTURES.has(at.tagName) || /^rgb\(/.test(style.backgroundColor)) return true;
    }
    return false;
  };
  // Fields that are often drawn by what stands beside them, transparent themselves, and take the clicks all the same.
  const DRAWN_BESIDE = new Set(["INPUT", "SELECT", "TEXTAREA"]);
  // Whether nothing of the element can be seen, because it or what it is in is wholly transparent.
  const isTransparent = (element) =>
    !DRAWN_BESIDE.has(element.tagName) && !element.checkVisibility({ checkOpacity: true }) && element.checkVisibility();
  // Where the pages around a frame lie over it.
  const holeAt = (x, y, b) => b.holes.find((h) => x >= h.left && x < h.right && y >= h.top && y < h.bottom);
  // A point where the element is in view and on top, or null: the centres of its parts first.
  const pointOf = (element, spots = SPOTS) => {
    const root = element.getRootNode();
    const rects = element.getClientRects();
    const b = bounds();
    for (const [across, down] of spots) {
      for (let i = 0; i < rects.length && i < MOST_RECTS; i += 1) {
        const left = Math.max(rects[i].left, b.left);
        const top = Math.max(rects[i].top, b.top);
        const right = Math.min(rects[i].right, b.right);
        const bottom = Math.min(rects[i].bottom, b.bottom);
        if (right - left < 1 || bottom - top < 1) continue;
        const x = left + across * (right - left);
        const y = top + down * (bottom - top);
        if (holeAt(x, y, b) !== undefined) continue;
        if (hits(element, root, x, y)) return { x, y };
      }
    }
    return null;
  };
  // Where a frame's document lies: the place of its origin, and how large its pixels are drawn.
  const boxOf = (frame) => {
    const r = frame.getBoundingClientRect();
    const scale = frame.offsetWidth > 0 ? r.width / frame.offsetWidth : 1;
    const style = getComputedStyle(frame);
    const x = r.left + (frame.clientLeft + parseFloat(style.paddingLeft)) * scale;
    const y = r.top + (frame.clientTop + parseFloat(style.paddingTop)) * scale;
    return { x, y, scale };
  };
  // What can be seen of a frame, in its own coordinates.
  const partOf = (frame) => {
    const { x, y, scale } = boxOf(frame);
    const b = bounds();
    const left = Math.max(x, b.left);
    const top = Math.max(y, b.top);
    const right = Math.min(x + frame.clientWidth * scale, b.right);
    const bottom = Math.min(y + frame.clientHeight * scale, b.bottom);
    const inner = (l, t, r, d) => ({ left: (l - x) / scale, top: (t - y) / scale, right: (r - x) / scale, bottom: (d - y) / scale });
    const root = frame.getRootNode();
    const holes = [];
    for (let row = 0; row < GRID; row += 1) {
      for (let column = 0; column < GRID; column += 1) {
        const w = (right - left) / GRID;
        const h = (bottom - top) / GRID;
        const [cx, cy] = [left + (column + 0.5) * w, top + (row + 0.5) * h];
        const outer = holeAt(cx, cy, b);
        if (outer === undefined && hits(frame, root, cx, cy)) continue;
        const hit = root.elementFromPoint(cx, cy);
        const opaque = outer === undefined ? hit !== null && isOpaque(hit, frame) : outer.opaque;
        holes.push({ ...inner(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2), opaque });
      }
    }
    return { x, y, scale, view: { ...inner(left, top, right, bottom), holes } };
  };

  // ---- text ----------------------------------------------------------------------------------------------------------
  const clean = (text) => text.slice(0, 4 * LONGEST_TEXT).replace(/[\s\u0000-\u001f\u007f]+/g, " ");
  const cut = (text) => (text.length > LONGEST_TEXT ? text.slice(0, LONGEST_TEXT).replace(/[\ud800-\udbff]$/, "") : text);
  const assignedTo = (slot) => {
    const assigned = slot.assignedNodes();
    return assigned.length ? assigned : slot.childNodes;
  };

  // ---- what actions point at -----------------------------------------------------------------------------------------
  const UNTYPABLE = new Set(["button", "checkbox", "color", "file", "hidden", "image", "radio", "range", "reset", "submit"]);
  const SET_WHOLE = new Set(["date", "datetime-local", "month", "time", "week"]);
  const failed = (message, why = "") => ({ failed: message, why });
  const gone = () => failed("it is gone from the page", "gone");
  const describe = (element) => (element === null ? "nothing" : `<${element.tagName.toLowerCase()}>`);
  const fire = (element, ...types) => {
    for (const type of types) element.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
  };
  const visibleBox = (element) => {
    const b = bounds();
    const r = [...element.getClientRects()].find((rect) => inView(rect, b)) ?? element.getBoundingClientRect();
    return [Math.max(r.left, b.left), Math.max(r.top, b.top), Math.min(r.right, b.right), Math.min(r.bottom, b.bottom)];
  };
  const isEditable = (element) => element.isContentEditable || element.tagName === "TEXTAREA"
    || (element.tagName === "INPUT" && !UNTYPABLE.has(element.type));

  const api = {
    shared: { TEXT_NODE, ELEMENT_NODE, SPOTS, bounds, inView, within, pointOf, clean, cut, assignedTo, listeners, isOpaque, isTransparent, holeAt },

    // An action begins. With a label: where to point at its element, or why that cannot be.
    begin(label, typing) {
      signal("begin");
      if (label === null) return { x: innerWidth / 2, y: innerHeight / 2, height: innerHeight };
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return gone();
      if (element.matches(":disabled")) return failed("it is disabled");
      if (element.tagName === "INPUT" && element.type === "file" && !typing) return failed("it takes files; only an upload gives it some");
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
      const above = element.getRootNode().elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
      return failed(`it is covered by ${describe(above)}`, "covered");
    },

    // Where a point of a frame's document is in this one, or why it cannot be pointed at.
    through(number, x, y) {
      const frame = framed[number];
      if (frame === undefined || !frame.isConnected) return failed("its frame is gone from the page", "gone");
      const box = boxOf(frame);
      const at = { x: box.x + x * box.scale, y: box.y + y * box.scale };
      const b = bounds();
      if (at.x < b.left || at.x >= b.right || at.y < b.top || at.y >= b.bottom) return failed("it is not visible");
      if (hits(frame, frame.getRootNode(), at.x, at.y)) return at;
      return failed(`it is covered by ${describe(frame.getRootNode().elementFromPoint(at.x, at.y))}`, "covered");
    },

    // A file field, to be given files, or null.
    fileField(label) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return null;
      // What looks like the field is often a label or a button beside it.
      const field = element.control ?? element;
      return field.tagName === "INPUT" && field.type === "file" && !field.disabled ? field : null;
    },
    frame(number) {
      return framed[number] ?? null;
    },

    // Selects all text of the element that has just been clicked, which must have the focus by now.
    selectAll(label) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return gone();
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
      if (element === undefined || !element.isConnected) return gone();
      element.focus();
      element.value = value;
      fire(element, "input", "change");
      return value !== "" && element.value === "" ? failed(`"${value}" is no ${element.type}`) : {};
    },

    // Picks an option by its text: equal first, else the first that contains it, letter case ignored.
    pick(label, wanted) {
      const element = labelled[label];
      if (element === undefined || !element.isConnected) return gone();
      if (element.tagName !== "SELECT") return failed(`${describe(element)} has no options; click it instead`);
      if (element.matches(":disabled")) return failed("it is disabled");
      const plain = (text) => text.replace(/\s+/g, " ").trim().toLowerCase();
      const all = [...element.options];
      const usable = all.filter((option) => !option.disabled && !option.parentElement.disabled);
      const find = (options) =>
        options.find((o) => plain(o.text) === plain(wanted)) ?? options.find((o) => plain(o.text).includes(plain(wanted)));
      const option = find(usable);
      if (option === undefined) return { missing: true, disabled: find(all) !== undefined };
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
      const where = { url: location.href, title: document.title.slice(0, 500) };
      // What shows no numbers leaves them as they are.
      if (!options.text && !options.axtree && !options.boxes) return { text: "", truncated: false, labels: 0, ...where };
      view = options.view ?? null;
      const seen = api.simplified(options);
      labelled = seen.labelled;
      framed = seen.framed;
      const answer = { text: seen.text, truncated: seen.truncated, labels: labelled.length, ...where };
      if (framed.length) answer.frames = framed.map(partOf);
      if (options.axtree) Object.assign(answer, api.axtree(options, labelled, framed, seen.isCovered));
      if (options.boxes) answer.boxes = labelled.map(visibleBox);
      return answer;
    },

    // Waits until the page is quiet and reads it.
    async finish(bound, options, inFrame = false) {
      const started = performance.now();
      const state = await settle(bound, inFrame);
      const settled = performance.now();
      const page = options === null ? {} : api.observe(options);
      return { waitedFor: "", ...state, ...page, closed: window.closed, settleMs: settled - started, observeMs: performance.now() - settled };
    },
  };
  globalThis.webagent = api;
}
