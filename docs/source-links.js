// Links that lead out of the book lead into the repository: mdbook leaves them as they are in the
// tree, where they work in an editor.
(() => {
    const repository = "https://github.com/rackscan/rackscan/blob/main/";
    const depth = path_to_root.split("../").length - 1;
    for (const link of document.querySelectorAll("main a[href^='../']")) {
        const href = link.getAttribute("href");
        const above = href.match(/^(\.\.\/)+/)[0].length / 3;
        if (above > depth) {
            link.href = repository + href.slice(3 * above).replace(/\.html($|#)/, ".md$1");
        }
    }
})();
