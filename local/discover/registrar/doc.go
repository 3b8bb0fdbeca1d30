// Package registrar keeps one worker registered with every local instance of its zone, running next to the engine: it
// waits until the engine is up, registers, renews at a third of the lease, and unregisters at the end. It only
// handles the registration and never the engine's requests.
package registrar
