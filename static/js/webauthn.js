/* Passkeys: asks the browser for one and puts its answer into the form's hidden field. */
const words = document.getElementById("passkey-words").dataset;

const toBytes = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
const toText = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");

function request(options) {
  const allowCredentials = options.allowCredentials?.map((item) => ({ ...item, id: toBytes(item.id) }));
  return { ...options, challenge: toBytes(options.challenge), ...(allowCredentials && { allowCredentials }) };
}

function creation(options, alone) {
  const selection = { ...options.authenticatorSelection };
  selection.residentKey = alone ? "required" : "discouraged";
  selection.requireResidentKey = alone;
  if (alone) selection.userVerification = "required";
  return {
    ...options,
    challenge: toBytes(options.challenge),
    user: { ...options.user, id: toBytes(options.user.id) },
    excludeCredentials: options.excludeCredentials?.map((item) => ({ ...item, id: toBytes(item.id) })),
    authenticatorSelection: selection,
  };
}

function answer(credential) {
  const response = { clientDataJSON: toText(credential.response.clientDataJSON) };
  for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = toText(credential.response[name]);
  }
  if (credential.response.getTransports) response.transports = credential.response.getTransports();
  return JSON.stringify({
    type: credential.type,
    id: credential.id,
    rawId: toText(credential.rawId),
    authenticatorAttachment: credential.authenticatorAttachment,
    response,
    clientExtensionResults: credential.getClientExtensionResults(),
  });
}

async function ask(form) {
  const kept = form.dataset.options && document.getElementById(form.dataset.options);
  if (form.dataset.passkey === "add") {
    const alone = form.elements.passwordless?.checked ?? false;
    const publicKey = creation(JSON.parse(kept.textContent).publicKey, alone);
    return navigator.credentials.create({ publicKey });
  }
  let options = kept && JSON.parse(kept.textContent);
  if (!options) {
    const reply = await fetch(form.action, { headers: { Accept: "application/json" } });
    if (!reply.ok) throw new TypeError(words.server);
    options = (await reply.json()).request_options;
  }
  return navigator.credentials.get({ publicKey: request(options.publicKey) });
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const place = form.querySelector(".errorlist[role=alert]");
  const say = (text) => {
    place.textContent = text;
    place.hidden = !text;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!window.PublicKeyCredential || !navigator.credentials) return say(words.none);
    say("");
    try {
      form.elements.credential.value = answer(await ask(form));
    } catch (error) {
      if (error.name === "InvalidStateError") say(words.known);
      else if (error.name === "SecurityError") say(words.none);
      else say(error instanceof TypeError ? words.server : words.refused);
      return;
    }
    form.submit();
  });
}
