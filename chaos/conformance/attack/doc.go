// Command attack runs a fleet on loopback, attacks it the way its reviewers did, and prints for each attack whether it was
// refused and what was measured. The fleet is the real binary: global nodes, gateways and local instances as processes of
// their own. The workers are victims: simulated workers behind a server of this program that counts what reaches them and
// that dies, refuses or echoes when a request holds a marker.
//
// Attacks are bounded in number and time and go to loopback addresses only. The program decides nothing for Spillway and
// never reads its state except through its public listeners, as an attacker would.
package main
