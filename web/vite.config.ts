import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

const out = "../python/bytemill/studio/static";

/** Write the hash of the sources beside the built files, so that a test can tell whether they match. */
function sourceHash(): Plugin {
  return {
    name: "source-hash",
    closeBundle() {
      const files = ["index.html", "package.json", "svelte.config.js", "tsconfig.json", "vite.config.ts"];
      for (const entry of readdirSync("src", { recursive: true, withFileTypes: true })) {
        if (entry.isFile()) files.push(relative(".", join(entry.parentPath, entry.name)));
      }
      const hash = createHash("sha256");
      for (const file of files.map((name) => name.replaceAll("\\", "/")).sort()) {
        hash.update(`${file}\0`).update(readFileSync(file)).update("\0");
      }
      writeFileSync(join(out, "source.sha256"), `${hash.digest("hex")}\n`);
    },
  };
}

export default defineConfig({
  plugins: [svelte(), sourceHash()],
  base: "/",
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: { host: "127.0.0.1", proxy: { "/api": "http://127.0.0.1:8321" } },
});
