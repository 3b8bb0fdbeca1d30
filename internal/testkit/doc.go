// Package testkit holds what tests of several packages share: waiting for a condition, a log that can be read while it
// is written, archives of texts with a mistake and the message that each produces, and the switch for long runs.
package testkit
