// Package netif is the network interface of a tier that does not use the system's network: tests run many nodes in one
// process, over a network in memory and in virtual time. A node in production sets none.
package netif
