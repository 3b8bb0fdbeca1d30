// Package strict reads YAML that people write: it decides whether a text fits a Go struct, and says of every mistake
// where it is, what is wrong and what to write instead, all of them at once.
//
// It never reads a file, never stops at the first mistake, never guesses a value into force, and never shows what
// stands under a key marked secret or looks like an API key. Aliases are followed within a budget; tags, merge keys and
// second documents are refused, so that a page means what it seems to mean.
//
// Struct tags: `yaml:"name"` names the key, `default:"20s"` is what an absent key means, `secret:"true"` keeps the value
// out of every message. It understands structs, pointers, lists, maps by name, text, numbers, truth values, durations,
// addresses and whatever implements encoding.TextUnmarshaler; an UnmarshalText may return a *Hinted.
package strict
