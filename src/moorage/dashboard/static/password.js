// The box "Show password" of a form. Without scripts it stays hidden, because it could do nothing.
"use strict";

(() => {
  for (const label of document.querySelectorAll("label.reveal")) {
    const [box, form] = [label.querySelector("input"), label.closest("form")];
    const fields = [...form.querySelectorAll('input[type="password"]')];
    const show = () => { for (const field of fields) field.type = box.checked ? "text" : "password"; };
    // What leaves the page is a password, not a text, which browsers would keep for other forms and for the way back.
    const hide = () => { box.checked = false; show(); };
    box.addEventListener("change", show);
    form.addEventListener("submit", hide);
    addEventListener("pagehide", hide);
    hide();
    label.hidden = false;
  }
})();
