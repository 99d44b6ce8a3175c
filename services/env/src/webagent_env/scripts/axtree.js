// Reads a document as a tree of roles and names, with the numbers of observation.js; see world.js.
//
// A line is `[number] role "name" state, state`, indented by its depth below the last line that was written. Elements
// without a role of their own are left out and their children take their place; text is a line of its own unless it is
// the name of what it stands in. What simplified HTML leaves out as covered or transparent is left out here.
(webagent) => {
  const { TEXT_NODE, ELEMENT_NODE, bounds, inView, clean, cut, assignedTo, isTransparent } = webagent.shared;
  const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "LINK", "META"]);
  const ROLES = {
    A: "link", ARTICLE: "article", ASIDE: "complementary", BUTTON: "button", DETAILS: "group", DIALOG: "dialog", FIELDSET: "group",
    FIGURE: "figure", FOOTER: "contentinfo", FORM: "form", FRAME: "Iframe", H1: "heading", H2: "heading", H3: "heading", H4: "heading",
    H5: "heading", H6: "heading", HEADER: "banner", HR: "separator", IFRAME: "Iframe", IMG: "img", LI: "listitem", MAIN: "main",
    MENU: "list", METER: "meter", NAV: "navigation", OL: "list", OPTGROUP: "group", OPTION: "option", OUTPUT: "status", P: "paragraph",
    PROGRESS: "progressbar", SECTION: "region", SELECT: "combobox", SUMMARY: "button", TABLE: "table", TD: "cell", TEXTAREA: "textbox",
    TH: "columnheader", TR: "row", UL: "list", VIDEO: "video", CANVAS: "canvas",
  };
  const INPUTS = {
    button: "button", checkbox: "checkbox", color: "colorwell", file: "button", image: "button", number: "spinbutton", radio: "radio",
    range: "slider", reset: "button", search: "searchbox", submit: "button",
  };
  const NAMED_BY_CONTENT = new Set(["button", "cell", "checkbox", "columnheader", "heading", "link", "menuitem", "menuitemcheckbox",
    "menuitemradio", "option", "paragraph", "radio", "rowheader", "switch", "tab", "treeitem"]);
  const NAMED_BY_AUTHOR = new Set(["region", "form", "group"]);
  const DEEPEST = 600;
  const MOST_OPTIONS = 500;

  const holdsText = (element) => [...element.childNodes].some((child) => child.nodeType === TEXT_NODE && child.data.trim() !== "");
  const plain = (text) => cut(clean(text ?? "").trim());
  const roleOf = (element) => {
    const given = (element.getAttribute("role") ?? "").trim().split(/\s+/)[0].toLowerCase();
    if (given && /^[a-z]+$/.test(given)) return given === "presentation" || given === "none" ? "" : given;
    if (element.tagName === "INPUT") return INPUTS[element.type] ?? "textbox";
    if (element.tagName === "SELECT" && (element.multiple || element.size > 1)) return "listbox";
    if (element.tagName === "A" && !element.hasAttribute("href")) return "";
    return ROLES[element.tagName.toUpperCase()] ?? (element.isContentEditable && !element.parentElement?.isContentEditable ? "textbox" : "");
  };
  const authored = (element) => {
    const root = element.getRootNode();
    const ids = (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const labelled = ids.map((id) => plain(root.getElementById?.(id)?.textContent)).filter(Boolean).join(" ");
    return labelled || plain(element.getAttribute("aria-label"));
  };
  const nameOf = (element) => {
    const name = authored(element);
    if (name) return name;
    if (element.labels?.length) return plain([...element.labels].map((label) => label.textContent).join(" "));
    if (element.tagName === "INPUT" && ["button", "submit", "reset"].includes(element.type)) return plain(element.value || element.type);
    return plain(element.getAttribute("alt")) || plain(element.getAttribute("placeholder")) || plain(element.getAttribute("title"));
  };
  const statesOf = (element, role) => {
    const states = [];
    const flag = (name) => { if (element.getAttribute(`aria-${name}`) === "true") states.push(name); };
    if (role === "heading") states.push(`level ${/^H[1-6]$/.test(element.tagName) ? element.tagName[1] : element.ariaLevel ?? 2}`);
    if (element.disabled || element.getAttribute("aria-disabled") === "true") states.push("disabled");
    if (element.type === "checkbox" || element.type === "radio") states.push(element.checked ? "checked" : "not checked");
    else if (element.hasAttribute("aria-checked")) states.push(element.ariaChecked === "true" ? "checked" : "not checked");
    if (element.hasAttribute("aria-expanded")) states.push(element.ariaExpanded === "true" ? "expanded" : "collapsed");
    if (element.tagName === "DETAILS") states.push(element.open ? "expanded" : "collapsed");
    if (element.required) states.push("required");
    if (element.readOnly && (element.tagName === "INPUT" || element.tagName === "TEXTAREA")) states.push("read-only");
    if (element.getRootNode().activeElement === element && element !== document.body) states.push("focused");
    for (const name of ["selected", "pressed", "invalid"]) flag(name);
    if (element.tagName === "OPTION" && element.selected) states.push("selected");
    const valued = element.tagName === "TEXTAREA" || (element.tagName === "INPUT" && ["textbox", "searchbox", "spinbutton", "slider"].includes(role));
    if (valued && element.value !== "") states.push(`value ${JSON.stringify(plain(element.value))}`);
    return states;
  };

  class Tree {
    constructor(options, labelled, framed, isCovered) {
      this.limit = options.maxBytes;
      this.hidden = new Set(options.hidden.flatMap((selector) => [...document.querySelectorAll(selector)]));
      this.numbers = new Map(labelled.map((element, number) => [element, number]));
      this.holders = new Set();
      for (const element of labelled) this.addHolders(element);
      this.isCovered = isCovered;
      this.frames = new Map(framed.map((element, number) => [element, number]));
      this.bounds = bounds();
      this.lines = [];
      this.length = 0;
    }

    addHolders(element) {
      const outside = (at) => at.assignedSlot ?? at.parentElement ?? at.getRootNode().host ?? null;
      for (let at = outside(element); at !== null && !this.holders.has(at); at = outside(at)) this.holders.add(at);
    }

    write(depth, line) {
      this.lines.push("  ".repeat(Math.min(depth, 40)) + line);
      this.length += line.length + 2 * depth + 1;
    }

    // Whether the element is in view, and yet something lies over what it says itself or it is transparent.
    isUnseen(element, rect) {
      if (this.numbers.has(element) || !inView(rect, this.bounds)) return false;
      if (isTransparent(element)) return true;
      return !this.holders.has(element) && (roleOf(element) !== "" || holdsText(element)) && this.isCovered(element);
    }

    // `unseen` is whether that holds of the element's parent.
    visit(element, depth, deep, unseen) {
      if (this.length > this.limit || deep > DEEPEST || SKIPPED_TAGS.has(element.tagName) || this.hidden.has(element)) return;
      if (element.getAttribute("aria-hidden") === "true") return;
      const style = getComputedStyle(element);
      if (style.display === "none") return;
      // An element without a box of its own shows its children in its parent's.
      const rect = style.display === "contents" ? null : element.getBoundingClientRect();
      const gone = rect === null ? unseen : this.isUnseen(element, rect);
      const visible = style.visibility === "visible" && !gone && (rect === null || inView(rect, this.bounds));
      const number = this.numbers.get(element);
      const role = visible ? roleOf(element) : "";
      let name = role || number !== undefined ? nameOf(element) : "";
      if (number === undefined && (!role || (NAMED_BY_AUTHOR.has(role) && !name))) return this.children(element, depth, deep, visible, "", gone);
      let said = "";
      if (!name && NAMED_BY_CONTENT.has(role || "button") && !this.holdsOthers(element)) name = said = plain(element.innerText ?? element.textContent);
      const states = statesOf(element, role);
      const parts = [number === undefined ? "" : `[${number}]`, role || "generic", name && JSON.stringify(name), states.join(", ")];
      this.write(depth, parts.filter(Boolean).join(" "));
      if (this.frames.has(element)) this.write(depth + 1, `\u0001${this.frames.get(element)}\u0001`);
      if (element.tagName === "SELECT") {
        for (const option of [...element.options].slice(0, MOST_OPTIONS))
          this.write(depth + 1, ["option", JSON.stringify(plain(option.text)), statesOf(option, "option").join(", ")].filter(Boolean).join(" "));
      } else if (element.tagName !== "TEXTAREA" && !said) this.children(element, depth + 1, deep, visible, name, gone);
    }

    // Whether its text is not all that it says, or not all to be seen.
    holdsOthers(element) {
      if (this.holders.has(element) || element.shadowRoot !== null) return true;
      if (element.querySelector("iframe,frame,img[alt],select") !== null) return true;
      return [...element.querySelectorAll("*")].some((inner) => this.isUnseen(inner, inner.getBoundingClientRect()));
    }

    children(element, depth, deep, visible, name, unseen) {
      const from = element.tagName === "SLOT" ? assignedTo(element) : (element.shadowRoot ?? element).childNodes;
      // What a closed details element holds has boxes, though it is not drawn.
      const only = element.tagName === "DETAILS" && !element.open ? element.querySelector(":scope > summary") : undefined;
      for (const child of from) {
        if (only !== undefined && child !== only) continue;
        if (child.nodeType === ELEMENT_NODE) this.visit(child, depth, deep + 1, unseen);
        else if (child.nodeType === TEXT_NODE && visible) {
          const text = plain(child.data);
          if (text && text !== name) this.write(depth, `text ${JSON.stringify(text)}`);
        }
      }
    }
  }

  webagent.axtree = (options, labelled, framed, isCovered) => {
    const tree = new Tree(options, labelled, framed, isCovered);
    if (document.body) tree.visit(document.body, 0, 0, false);
    return { axtree: tree.lines.join("\n"), axtreeTruncated: tree.length > tree.limit };
  };
}
