// Package archtest holds the house plan by test: which top-level folders exist, who may import whom, and what a pure
// package may not touch. Every failure says why the rule exists, so that it can be argued with.
//
// It decides nothing about style, names or sizes, and nothing imports it.
package archtest
