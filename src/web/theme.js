/* Sets the colours before anything is painted: as chosen (localStorage "skua.theme": light or dark), else as the system has them. */
"use strict";
(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const chosen = () => {
        try {
            return localStorage.getItem("skua.theme");
        } catch {
            return null;
        }
    };
    const apply = () => {
        const choice = chosen();
        document.documentElement.dataset.theme = choice === "dark" || choice === "light" ? choice : system.matches ? "dark" : "light";
    };
    system.addEventListener("change", apply);
    addEventListener("storage", apply);
    addEventListener("skua-theme", apply);
    apply();
})();
