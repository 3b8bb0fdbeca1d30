// Package poison remembers requests under which workers died, so that a request that kills its worker is not sent to one
// worker after another. It decides by fingerprints alone: it never sees a prompt, keeps no clock and no lock, and does nothing
// about a request itself.
package poison
