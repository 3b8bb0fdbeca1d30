// Package testkit holds what tests of several packages share: waiting for a condition, a log that can be read while it
// is written, and the switch for long runs.
package testkit
