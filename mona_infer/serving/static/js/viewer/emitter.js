export class Emitter {
  #listeners = {};

  on(event, listener) {
    (this.#listeners[event] ??= []).push(listener);
  }

  emit(event, ...values) {
    for (const listener of this.#listeners[event] ?? []) listener(...values);
  }
}
