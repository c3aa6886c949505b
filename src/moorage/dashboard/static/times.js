// Times in the browser's time zone, with UTC beside them. Pages contain UTC; without scripts, and in browsers whose zone
// is UTC, they stay as they are. A form shows the browser's zone, too, and sends UTC.
"use strict";

const moorageTimes = (() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const isUtc = (at) => at.getTimezoneOffset() === 0;
  const local = (at) => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString();
  const short = (iso, length) => iso.slice(0, length).replace("T", " ");
  const utcBeside = (at, length) => {
    const [mine, utc] = [short(local(at), length), short(at.toISOString(), length)];
    return `${mine.slice(0, 10) === utc.slice(0, 10) ? utc.slice(11) : utc} UTC`;
  };

  // Changes every <time> below `part`; `part` may belong to another document, such as a fetched page.
  function localise(part) {
    for (const time of part.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime()) || isUtc(at) || time.querySelector(".utc")) continue;
      const length = time.textContent.trim().length;
      const utc = time.ownerDocument.createElement("span");
      utc.className = "utc";
      utc.textContent = utcBeside(at, length);
      time.replaceChildren(short(local(at), length), " ", utc);
    }
    if (isUtc(new Date())) return;
    const hours = -new Date().getTimezoneOffset() / 60;
    for (const note of part.querySelectorAll("[data-zone-note]")) {
      note.textContent = ` In ${zone} it is ${Math.abs(hours)} h ${hours > 0 ? "later" : "earlier"}.`;
    }
  }

  function localiseField(input) {
    const label = document.querySelector(`label[for="${CSS.escape(input.id)}"]`);
    if (!input.form || !label || isUtc(new Date())) return;
    label.textContent = label.textContent.replace("UTC", zone);
    const value = input.defaultValue ? new Date(`${input.defaultValue}Z`) : null;
    if (value && !Number.isNaN(value.getTime())) input.value = local(value).slice(0, input.defaultValue.length);
    const unchanged = input.value;
    const hint = document.createElement("p");
    hint.className = "hint utc-of-field";
    hint.id = `${input.id}-utc`;
    input.setAttribute("aria-describedby", `${input.getAttribute("aria-describedby") ?? ""} ${hint.id}`.trim());
    input.after(hint);
    // In the hour that comes twice in autumn, a local time has two meanings: one that nobody changed keeps its own.
    const utc = () => {
      if (!input.value || input.value === unchanged) return input.value && input.defaultValue;
      return new Date(input.value).toISOString().slice(0, Math.max(16, input.value.length));
    };
    const show = () => { hint.textContent = input.value ? `${short(utc(), 16)} UTC` : ""; };
    input.addEventListener("input", show);
    addEventListener("pageshow", show);
    show();
    input.form.addEventListener("formdata", (event) => {
      if (event.formData.has(input.name)) event.formData.set(input.name, utc());
    });
  }

  localise(document);
  for (const input of document.querySelectorAll('input[type="datetime-local"]')) localiseField(input);
  if (!isUtc(new Date())) {
    const note = document.querySelector("[data-zone]");
    if (note) note.textContent = `Times are in ${zone}, with UTC beside them.`;
  }
  return { localise, text: (time) => short(local(new Date(time)), 16) };
})();
