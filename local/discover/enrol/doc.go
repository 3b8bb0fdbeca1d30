// Package enrol keeps one worker registered with every local instance of its zone, from beside the engine: it waits until
// the engine is up, registers, renews at a third of the lease, and signs off at the end. What runs here speaks for the
// engine and never touches its requests.
package enrol
