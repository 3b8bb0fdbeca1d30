// Command compare shows how the policies of one zone differ: a zone standing alone in front of eight stand-in workers, of
// which one is slowed, one lies about its health and one leaks memory until it dies, is sent the same requests at the
// same moments under each policy. It prints one table: errors, times to first token, goodput, and each worker's share.
// Then it shows what a tenant notices of another one's flood, on slow GPUs and on fast ones.
//
// By itself it runs on loopback and by the wall's clock. As a test (make compare) every run lives in virtual time, over a
// network in memory, with the same tiers and stand-ins: a minute takes seconds, and a busy machine changes nothing.
//
// It decides nothing about policies. What must hold of its figures is held by the tests beside it.
package main
