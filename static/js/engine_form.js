// New engine: of the installed vLLMs only those of the chosen host are offered. Without this module all are
// listed with their host's name, and a wrong pair is refused.
const host = document.querySelector("select[name=host]");
const environment = document.querySelector("select[name=environment]");
const port = document.querySelector("input[name=port]");

function narrow() {
  for (const option of environment.options) {
    const other = option.dataset.host !== undefined && option.dataset.host !== host.value;
    option.hidden = option.disabled = other;
    if (other && option.selected) environment.value = "";
  }
}

if (host && environment) {
  const suggested = port?.value;
  narrow();
  host.addEventListener("change", () => {
    narrow();
    // the suggestion was for the other host; an empty port takes the first one that is free
    if (port && port.value === suggested) port.value = "";
  });
}
