// What every page does beyond HTML: dark or light, copying commands, and a badge that stays fresh. Nothing leaves the host.

const THEME = "troth-theme";
const root = document.documentElement;

function stored() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // Storage may be forbidden; the system's choice counts then.
  }
}

function wearTheme(theme) {
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
}

function themeButton() {
  const button = document.getElementById("theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  button.hidden = false;
  button.addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    wearTheme(wanted);
    try {
      localStorage.setItem(THEME, wanted);
    } catch {
      // It lasts for this page then.
    }
  });
}

function copyButtons() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code.command").textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
}

async function refreshBadge() {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${document.body.dataset.root}freshness.json`, { credentials: "omit" });
    if (!answer.ok) throw new Error(String(answer.status));
    showFreshness(await answer.json());
  } catch {
    showFreshness({ state: "late", trouble: "This explorer does not answer; what you see is as it was." });
  }
}

function showFreshness(said) {
  const badge = document.getElementById("badge");
  const trouble = document.getElementById("trouble");
  badge.className = `badge ${["good", "late", "bad"].includes(said.state) ? said.state : "late"}`;
  if (said.text) document.getElementById("badge-text").textContent = said.text;
  trouble.textContent = said.trouble || "";
  trouble.hidden = !said.trouble;
}

wearTheme(stored());
themeButton();
copyButtons();
if ("live" in document.body.dataset) setInterval(refreshBadge, 10_000);
