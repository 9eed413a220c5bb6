/** Copy a text, also where the page came unencrypted from another machine: browsers have no clipboard object there. */
export async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  const focused = document.activeElement;
  field.value = text;
  field.className = "sr";
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!isCopied) throw new Error("the browser does not allow it");
}
