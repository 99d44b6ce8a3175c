// Runs in the page's own world from document start: knows when the page is quiet, and which elements listen for clicks.
//
// It answers events on `document` whose name nobody in the page knows:
//   <channel>-begin    an action begins: from now on timers belong to it
//   <channel>-quiet    detail = bound in ms; answered by <channel>-settled, detail = JSON {quiet, ended}
//   <channel>-mark     answered on each element with listeners: <channel>-clickable, or <channel>-pressable if it has
//                      none for a whole click
//
// Quiet: no one-shot timer of at most 1 s begun by the action is pending, the document is complete, and the DOM has not
// changed for two animation frames except by timers that repeat. A chain that re-arms itself repeats if it began before
// the action, or once it has gone on for a second; so does a timer equal to one that the page set while no action was
// under way; so does an interval, unless the action began it at the rate of frames less than a second ago: that is an
// animation on its way to the state the action asked for. What a timer's promises go on to do at once is the timer's
// doing. A page that changed all the time before the action, by whatever means, is given half a second.
({ channel, ended }) => {
  const native = {
    setTimeout: window.setTimeout.bind(window),
    clearTimeout: window.clearTimeout.bind(window),
    setInterval: window.setInterval.bind(window),
    clearInterval: window.clearInterval.bind(window),
    requestAnimationFrame: window.requestAnimationFrame.bind(window),
    addEventListener: EventTarget.prototype.addEventListener,
    now: performance.now.bind(performance),
    microtask: window.queueMicrotask.bind(window),
    source: Function.prototype.call.bind(Function.prototype.toString),
    CustomEvent: window.CustomEvent,
    Event: window.Event,
    WeakRef: window.WeakRef,
    dispatch: Function.prototype.call.bind(EventTarget.prototype.dispatchEvent),
    stringify: JSON.stringify,
  };
  const ONE_SHOT = 1000;
  const ANIMATION_PERIOD = 20;
  const ANIMATION_TIME = 1000;
  const CHAIN_TIME = 1000;
  const CHAIN_LINKS = 3; // of a chain that goes on with another function each time
  const NOBODYS = 0; // the epoch of what repeats: no action's
  const TURNS = 20; // of the microtask queue, which a timer's promises are followed for
  const MOST_OWN = 1000;
  const OWN_DELAY = 50; // what is sooner comes before the page is read, whosever it is
  const FRAME_FALLBACK = 100;
  const UNASKED = 3;
  const RESTLESS = 500;

  let epoch = 1; // counts actions; a document's own start is an action too
  let begun = native.now();
  let running = null; // the timer whose callback runs now: its epoch, and since when its chain goes on
  let rearmed = false; // whether that callback set another timer
  let held = false; // whether the DOM changed meanwhile
  let still = 0; // frames since the DOM last changed
  let moved = false; // whether the DOM changed since the action began
  let unasked = []; // when the DOM last changed though no action was under way
  let acting = true;
  let restless = false; // whether it did so up to the action: it will not stop for this one
  const pending = new Set(); // one-shot timers of this epoch
  const own = new Set(); // timers that the page set while no action was under way: source and delay
  const doubtful = new Map(); // timers that became its own since the last answer: the action may not have been over

  const changed = () => {
    still = 0;
    moved = true;
    if (!acting) unasked = [...unasked.slice(1 - UNASKED), native.now()];
  };
  const observer = new MutationObserver(() => { if (running === null) changed(); else held = true; });
  const watch = () => observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  const flush = () => { if (observer.takeRecords().length) changed(); };

  // The record of a timer that is set now.
  const timer = (callback) => {
    if (running === null) return { mine: epoch, since: native.now(), links: 0, callback };
    const { mine, since, links } = running;
    const endless = native.now() - since >= CHAIN_TIME && (running.callback === callback || links >= CHAIN_LINKS);
    return { mine: endless ? NOBODYS : mine, since, links: links + 1, callback };
  };
  // What makes a timer the page's own, and whether it becomes so now; null if it is not.
  const ownership = (callback, delay) => {
    if (!(delay >= OWN_DELAY)) return null;
    const key = `${delay} ${native.source(callback)}`;
    if (own.has(key)) return { key, isNew: false };
    // What resolves a promise looks like any other that does.
    if (acting || own.size >= MOST_OWN || key.includes("[native code]")) return null;
    own.add(key);
    return { key, isNew: true };
  };

  // Runs a timer's callback; `repeats` says, once it and what its promises went on to do ran, whether their changes to
  // the DOM are to be ignored.
  const run = (one, repeats, callback, self, args) => {
    flush();
    running = one;
    rearmed = held = false;
    const end = (turns) => {
      if (turns > 0) {
        native.microtask(() => end(turns - 1));
        return;
      }
      const moved = observer.takeRecords().length > 0 || held;
      running = null;
      if (moved && !repeats(rearmed)) changed();
    };
    try {
      return Reflect.apply(callback, self, args);
    } finally {
      end(TURNS);
    }
  };
  const isAnimation = (mine) => mine === epoch && native.now() - begun < ANIMATION_TIME;

  window.setTimeout = function setTimeout(callback, delay = 0, ...args) {
    if (typeof callback !== "function") return native.setTimeout(callback, delay, ...args);
    const one = timer(callback);
    const owned = running === null ? ownership(callback, delay) : null;
    if (owned) one.mine = NOBODYS;
    rearmed = true;
    const id = native.setTimeout(function () {
      doubtful.delete(id);
      try {
        run(one, (again) => one.mine === NOBODYS || (again && one.mine !== epoch), callback, this, args);
      } finally {
        pending.delete(id);
      }
    }, delay);
    if (owned?.isNew) doubtful.set(id, { one, key: owned.key, delay });
    else if (one.mine === epoch && !(delay > ONE_SHOT)) pending.add(id);
    return id;
  };
  window.clearTimeout = function clearTimeout(id) {
    pending.delete(id);
    doubtful.delete(id);
    native.clearTimeout(id);
  };
  window.clearInterval = function clearInterval(id) {
    pending.delete(id);
    native.clearInterval(id);
  };
  window.setInterval = function setInterval(callback, delay = 0, ...args) {
    if (typeof callback !== "function") return native.setInterval(callback, delay, ...args);
    const one = { ...timer(callback), since: native.now(), links: 0 };
    return native.setInterval(function () {
      run(one, () => !(delay <= ANIMATION_PERIOD && isAnimation(one.mine)), callback, this, args);
    }, delay);
  };
  window.requestAnimationFrame = function requestAnimationFrame(callback) {
    const one = timer(callback);
    rearmed = true;
    return native.requestAnimationFrame(function (time) {
      run(one, (again) => again && !isAnimation(one.mine), callback, this, [time]);
    });
  };

  // A hidden page draws no frames, so each one has a stand-in.
  const frame = (callback) => {
    let done = false;
    const once = () => {
      if (done) return;
      done = true;
      native.clearTimeout(timer);
      callback();
    };
    const timer = native.setTimeout(once, FRAME_FALLBACK);
    native.requestAnimationFrame(once);
  };
  const hasEnded = () => {
    try {
      return Boolean(ended());
    } catch {
      return false;
    }
  };
  // Asked again, so the answer before was not the end: something was loading still, and what it set is the action's.
  const reclaim = () => {
    acting = true;
    for (const [id, { one, key, delay }] of doubtful) {
      one.mine = epoch;
      own.delete(key);
      if (!(delay > ONE_SHOT)) pending.add(id);
    }
    doubtful.clear();
  };
  const settle = (bound) => {
    reclaim();
    const deadline = native.now() + bound;
    let waitedFor = "";
    const reply = (quiet) => {
      acting = false;
      const detail = native.stringify({ quiet, ended: hasEnded(), waitedFor });
      native.dispatch(document, new native.CustomEvent(channel + "-settled", { detail }));
    };
    const look = () => {
      flush();
      const done = pending.size === 0 && document.readyState === "complete";
      if (done && (still >= 2 || (restless && native.now() - begun > RESTLESS))) reply(true);
      else if (native.now() >= deadline) reply(false);
      else {
        if (pending.size) waitedFor = "timers";
        else if (!done) waitedFor = "loading";
        else if (moved && waitedFor === "") waitedFor = "changes";
        still += 1;
        frame(look);
      }
    };
    frame(() => { still += 1; look(); });
  };

  const CLICKS = new Set(["click", "dblclick", "mousedown", "mouseup", "pointerdown", "pointerup"]);
  const MOST_LISTENERS = 5000;
  const listening = new Set();
  const known = new WeakMap(); // element to whether it listens for whole clicks
  const remember = (target, whole) => {
    if (!(target instanceof Element) || target === document.documentElement || target === document.body) return;
    if (!known.has(target)) {
      if (listening.size >= MOST_LISTENERS) return;
      listening.add(new native.WeakRef(target));
    }
    known.set(target, whole || known.get(target) === true);
  };
  EventTarget.prototype.addEventListener = function addEventListener(type, ...rest) {
    if (CLICKS.has(type) && rest[0]) remember(this, type === "click");
    return native.addEventListener.call(this, type, ...rest);
  };
  for (const prototype of [HTMLElement.prototype, SVGElement.prototype]) {
    const onclick = Object.getOwnPropertyDescriptor(prototype, "onclick");
    Object.defineProperty(prototype, "onclick", {
      ...onclick,
      set(handler) {
        if (handler) remember(this, true);
        onclick.set.call(this, handler);
      },
    });
  }

  const listen = (name, handler) => native.addEventListener.call(document, `${channel}-${name}`, (event) => {
    event.preventDefault();
    handler(event.detail);
  });
  listen("begin", () => {
    flush();
    epoch += 1;
    begun = native.now();
    restless = unasked.length === UNASKED && begun - unasked[0] < UNASKED * RESTLESS && begun - unasked[UNASKED - 1] < RESTLESS;
    unasked = [];
    acting = true;
    moved = false;
    pending.clear();
    doubtful.clear();
    still = 0;
  });
  listen("quiet", settle);
  listen("mark", () => {
    for (const reference of listening) {
      const element = reference.deref();
      if (element === undefined) listening.delete(reference);
      else if (element.isConnected)
        native.dispatch(element, new native.Event(`${channel}-${known.get(element) ? "clickable" : "pressable"}`, { composed: true }));
    }
  });
  native.addEventListener.call(document, "scroll", changed, { capture: true, passive: true });
  watch();
}
