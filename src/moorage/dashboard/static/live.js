// Keys of every page, and parts of a page that are kept current: <section id="x" data-every="5"> is fetched with its page
// every 5 seconds and put in place of what is there, unless somebody is working in it, until one comes that does not say
// so any more. Without scripts the page is loaded again by hand.
"use strict";

(() => {
  const busy = (part) =>
    part.querySelector("details.menu[open], .pick :checked") ||
    (part.contains(document.activeElement) && document.activeElement.matches("a:focus-visible, input, select, textarea, button")) ||
    part.hasAttribute("data-dragging");
  const show_hints = (part) => { for (const hint of part.querySelectorAll(".with-scripts")) hint.hidden = false; };
  const details = (part) => [...part.querySelectorAll("details")];

  async function refresh(part) {
    if (!part.dataset.every || document.hidden || busy(part)) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (busy(part)) return; // since the question
      moorageTimes.localise(page.querySelector("footer") ?? page);
      document.querySelector("footer time")?.replaceWith(page.querySelector("footer time") ?? "");
      const fresh = page.getElementById(part.id);
      if (!fresh) return;
      // Another period of the calendar, because time went on: the whole page belongs to it.
      if (fresh.dataset.period !== part.dataset.period) return location.reload();
      moorageTimes.localise(fresh);
      show_hints(fresh);
      if (!fresh.dataset.every) part.removeAttribute("data-every");
      details(part).forEach((old, number) => { const same = details(fresh)[number]; if (same && old.open) same.open = true; });
      if (fresh.isEqualNode(part)) return;
      const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
      part.replaceChildren(...fresh.childNodes);
      [...part.querySelectorAll(".scroll")].forEach((one, number) => { one.scrollLeft = scrolled[number] ?? 0; });
      part.dispatchEvent(new CustomEvent("moorage:fresh", { bubbles: true }));
    } catch {
      // The service is away, or the session over: the next round, or the next click, says so.
    }
  }

  // On a phone the pages' names are one line that scrolls: the page's own one is in its middle. Without
  // scrollIntoView, which would also move the page away from the place after the address's #.
  const names = document.querySelector(".bar nav");
  const own = names?.querySelector("summary.current, ul > li > a[aria-current]");
  if (own && names.scrollWidth > names.clientWidth) {
    const [of_own, of_names] = [own, names].map((one) => one.getBoundingClientRect());
    names.scrollLeft += of_own.left + of_own.width / 2 - of_names.left - of_names.width / 2;
  }

  show_hints(document);
  for (const part of document.querySelectorAll("[data-every]")) {
    setInterval(() => refresh(part), Math.max(1, Number(part.dataset.every)) * 1000);
  }

  // The key / leads to the search field, unless somebody is typing.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const field = document.getElementById("everywhere");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  // An open menu closes with Escape and with a click elsewhere.
  const menus = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus()) { menu.open = false; menu.querySelector("summary").focus(); }
  });
  document.addEventListener("click", (event) => {
    for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
  });
})();
