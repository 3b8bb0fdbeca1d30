// Package archtest checks the structure of the module by test: which top-level folders exist, which packages may import
// which, what a pure package may not use, and that names and texts stay readable. Every failure gives the reason for
// the rule.
//
// The import rules are in rules.go. The other bounds are ratchets (ratchet.go, figures.go, words.go): the source
// exceeds some of them today, so testdata holds the figures that are allowed for now, and these may only shrink. Lower
// them with
//
//	go test ./internal/archtest -update
//
// which refuses to raise a line. A baseline file that is deleted first is written with the present figures.
//
// The words that are not used, each with its replacement, are in bannedwords.txt.
//
// All checks read syntax only. Production code does not import this package.
package archtest
