// Package debounce schedules when a tier rebuilds its view: at once on a change after a quiet period, not again
// within a gap after that, and periodically without changes. It never inspects the changes.
package debounce
