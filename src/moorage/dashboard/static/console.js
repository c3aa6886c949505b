// The page of a serial console: a terminal (xterm.js) at one end of a websocket. Its address works once, so a console
// that has ended is opened by sending the form again.
"use strict";

(() => {
  const place = document.getElementById("terminal");
  const state = document.getElementById("console-state");
  if (!place || !place.dataset.url) return;

  const theme = () => {
    const drawn = getComputedStyle(place);
    return {
      background: drawn.backgroundColor,
      foreground: drawn.color,
      cursor: drawn.color,
      cursorAccent: drawn.backgroundColor,
      selectionBackground: drawn.borderColor,
    };
  };
  const terminal = new Terminal({
    cols: 80,
    rows: 24,
    cursorBlink: false,
    fontFamily: getComputedStyle(place).fontFamily,
    fontSize: 14,
    screenReaderMode: true,
    scrollback: 5000,
    theme: theme(),
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { terminal.options.theme = theme(); });
  terminal.open(place);
  // Tab is for the guest; Control and Escape together lead back to the page.
  terminal.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.key === "Escape")) return true;
    document.getElementById("again").focus();
    return false;
  });

  const tell = (text, tone) => {
    state.textContent = text;
    state.className = `badge ${tone}`;
  };
  const socket = new WebSocket(`${place.dataset.url}&announce=host`, "binary");
  socket.binaryType = "arraybuffer";
  const bytes = new TextEncoder();
  let isOpen = false;
  let hasHost = false;

  socket.onopen = () => {
    isOpen = true;
    tell("Waiting for the host …", "warn");
    terminal.focus();
  };
  // The first message comes when the host has connected; it may be empty.
  socket.onmessage = (event) => {
    if (!hasHost) tell("Connected", "good");
    hasHost = true;
    terminal.write(new Uint8Array(event.data));
  };
  socket.onclose = (event) => {
    terminal.options.disableStdin = true;
    const unreached = "The browser could not connect: the address was used before or has expired, or its port is not reachable from here.";
    tell(event.reason ? `Ended: ${event.reason}` : isOpen ? "Ended: the connection was lost" : unreached, event.code === 1000 ? "" : "bad");
  };
  // A pasted text is sent in pieces that the proxy accepts.
  terminal.onData((text) => {
    const data = bytes.encode(text);
    for (let start = 0; start < data.length && socket.readyState === WebSocket.OPEN; start += 16384) {
      socket.send(data.subarray(start, start + 16384));
    }
  });
  terminal.onBinary((text) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
  });
})();
