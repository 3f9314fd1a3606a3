// Filters and searches what stands on the page. What is chosen stands in the address behind `#`.
"use strict";
(() => {
  const theme = document.getElementById("theme");
  const form = document.getElementById("filters");
  const items = [...document.querySelectorAll(".item")];
  const count = document.getElementById("count");
  const texts = new Map();

  const folded = (text) => text.normalize("NFKC").toLowerCase();
  const textOf = (item) => {
    if (!texts.has(item)) texts.set(item, folded(item.textContent));
    return texts.get(item);
  };
  const has = (item, name, value) => item.getAttribute(`data-${name}`).split("\n").includes(value);

  const chosen = () => {
    const found = new URLSearchParams();
    if (form) for (const [name, value] of new FormData(form)) if (value) found.set(name, value);
    return found;
  };

  // An item is shown if it has every chosen value and every word.
  const filter = () => {
    if (!form) return;
    const wanted = chosen();
    const words = folded(wanted.get("q") || "").split(/\s+/).filter(Boolean);
    wanted.delete("q");
    let shown = 0;
    for (const item of items) {
      const fits = [...wanted].every(([name, value]) => has(item, name, value))
        && words.every((word) => textOf(item).includes(word));
      item.hidden = !fits;
      shown += fits;
    }
    count.value = `${shown} / ${items.length}`;
    mark(words);
  };

  // Hits are marked without a change to the page, where the browser can.
  const mark = (words) => {
    if (!window.Highlight) return;
    const ranges = [];
    for (const item of words.length ? items : []) {
      if (item.hidden) continue;
      const walker = document.createTreeWalker(item, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < 2000) {
        const text = walker.currentNode.data.toLowerCase();
        if (text.length !== walker.currentNode.data.length) continue;
        for (const word of words) {
          for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
            const range = new Range();
            range.setStart(walker.currentNode, at);
            range.setEnd(walker.currentNode, at + word.length);
            ranges.push(range);
          }
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  const save = () => {
    const state = chosen();
    if (theme.value !== "auto") state.set("theme", theme.value);
    const hash = state.toString();
    history.replaceState(null, "", location.href.split("#")[0] + (hash && `#${hash}`));
  };

  const restore = () => {
    const hash = location.hash.slice(1);
    const target = hash && !hash.includes("=") && document.getElementById(hash);
    if (target) {
      filter();
      return reveal(target);
    }
    const state = new URLSearchParams(hash);
    theme.value = state.get("theme") || theme.value;
    if (theme.selectedIndex === -1) theme.value = "auto";
    if (form) {
      form.reset();
      for (const [name, value] of state) {
        const field = form.elements.namedItem(name);
        if (!field) continue;
        if (field.type === "checkbox") field.checked = field.value === value;
        else field.value = value;
        if (field.selectedIndex === -1) field.value = "";
      }
    }
    filter();
  };

  // A link to a place shows it, whatever is filtered.
  const reveal = (target) => {
    const item = target.closest(".item");
    if (item && item.hidden) {
      form.reset();
      filter();
    }
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
  };

  const fold = (open) => {
    for (const item of items) if (!item.hidden) item.querySelector(".fold").open = open;
  };

  theme.addEventListener("change", save);
  addEventListener("hashchange", restore);
  if (form) {
    form.hidden = false;
    form.addEventListener("input", () => { filter(); save(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("start-over").addEventListener("click", () => { form.reset(); filter(); save(); });
    document.getElementById("open-all").addEventListener("click", () => fold(true));
    document.getElementById("close-all").addEventListener("click", () => fold(false));
  }
  restore();
})();
