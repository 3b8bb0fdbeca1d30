// Command compare shows how the policies of one zone differ: a zone standing alone in front of eight stand-in workers, of
// which one is slowed, one lies about its health and one leaks memory until it dies, is sent the same requests at the
// same moments under each policy. It prints one table: errors, times to first token, goodput, and each worker's share.
// Then it shows what a tenant notices of another one's flood.
//
// It decides nothing about policies and asserts nothing: what must hold is held by tests in virtual time.
package main
