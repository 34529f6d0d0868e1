/**
 * The login: the user pastes a token.
 * @module
 */

import { fill, h } from "../lib/dom.js";
import { session } from "../lib/session.js";
import { View, hasCode, textOf } from "../lib/view.js";

/** Asks for a token. */
export class LoginView extends View {
  /** @param {() => void} done Called after a login. */
  constructor(done) {
    super();
    /** @private */
    this.done = done;
  }

  build() {
    const token = h("input", {
      type: "password",
      name: "token",
      id: "token",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
    });
    const keep = h("input", { type: "checkbox", id: "keep" });
    const why = h("p.failure", { role: "alert", hidden: !session.farewell }, session.farewell);
    const button = h("button.primary", { type: "submit" }, "Log in");
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await session.login(token.value.trim(), keep.checked);
        this.done();
      } catch (error) {
        why.hidden = false;
        fill(why, hasCode(error, "bad_token") ? `The server refused the token. ${textOf(error)}` : textOf(error));
        button.disabled = false;
        token.select();
      }
    };
    this.append(
      h(
        "form.card.login",
        { onsubmit: submit, "aria-labelledby": "login-title" },
        h("h1", { id: "login-title" }, "Log in"),
        why,
        h("label", { for: "token" }, "Token"),
        token,
        h("label.check", keep, "Keep it until this tab is closed"),
        h("p.quiet", "Otherwise the token stays in memory and is gone when the page is loaded again."),
        button,
        h(
          "p.quiet",
          "An operator makes tokens with ",
          h("code", "promethean token new --name you --scope 'subscribe:**'"),
          ".",
        ),
      ),
    );
    token.focus();
  }
}
customElements.define("login-view", LoginView);
