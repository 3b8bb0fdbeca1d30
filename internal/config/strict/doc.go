// Package strict decodes YAML written by people. Document parses a text and decodes it into a Go struct; it
// reports all mistakes at once, each with its position, the reason and a correction (Mistake, Error).
//
// It never reads a file, never stops at the first mistake, never guesses a value, and never shows the value of
// a key marked secret or text that looks like an API key. Aliases are followed within a budget; tags, merge
// keys and second documents are refused, so that a text has one obvious meaning.
//
// Struct tags: `yaml:"name"` names the key, `default:"20s"` is the value of an absent key, `secret:"true"`
// keeps the value out of every message. Supported are structs, pointers, lists, maps by name, text, numbers,
// booleans, durations, addresses and types that implement encoding.TextUnmarshaler; an UnmarshalText may return
// a *HintedError.
package strict
