/* More rows for targets, from the template that the server sent. */
const list = document.querySelector("[data-targets]");
const total = document.querySelector("[name=targets-TOTAL_FORMS]");
const template = document.getElementById("target-template");

document.querySelector("[data-add-target]")?.addEventListener("click", () => {
  const index = Number(total.value);
  const holder = document.createElement("div");
  holder.append(template.content.cloneNode(true));
  for (const element of holder.querySelectorAll("*")) {
    for (const attribute of [...element.attributes]) {
      if (attribute.value.includes("__prefix__")) {
        element.setAttribute(attribute.name, attribute.value.replaceAll("__prefix__", index));
      }
    }
  }
  const legend = holder.querySelector("legend");
  legend.textContent = legend.textContent.replace("__number__", index + 1);
  const row = holder.firstElementChild;
  list.append(row);
  total.value = index + 1;
  row.querySelector("select").focus();
});
