// The link of an invitation has its code after the "#", which browsers send to no server, so no log has it. This puts the
// code into the form and removes it from the address. Without scripts, people paste it.
"use strict";

(() => {
  const code = document.getElementById("code");
  const given = location.hash.slice(1);
  if (given) {
    code.value = given;
    history.replaceState(null, "", location.pathname);
  }
  if (code.value && code.getAttribute("aria-invalid") !== "true") {
    document.getElementById("code-field").hidden = true;
    document.getElementById("password").focus();
  }
})();
