// Package netif is what a tier listens and dials with when that is not the system's network: many nodes then run inside
// one process, over a network in memory, and in virtual time.
//
// It decides nothing, and no node that runs by itself ever sets one.
package netif
